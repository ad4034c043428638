"""Distillation over a vocabulary: the most probable tokens of the teacher, and all others as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.decoders import gpt2, of_decoders
from tests.unit.core.tasks.test_masked_lm import passages
from tests.unit.core.training_runs import settings
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mvprune.data.loading import PassageData
from mvprune.data.tasks import get_task
from mvprune_core import CompressionError, Teacher, Training, compress
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.losses import NextTokenCrossEntropy
from mvprune_core.tasks.outputs import KEPT, TokenLogits, VocabularyLogits
from mvprune_core.training import distillation
from mvprune_core.training.distillation import DistillationLoss, compute_teacher_logits
from mvprune_core.training.gradients import BatchGradients

CPU = torch.device("cpu")
DATA = PassageData(get_task("causal-lm"), passages(60, 1), passages(20, 2))
OUTPUT = VocabularyLogits()
SHORT = Training(max_steps=6, batch_size=4, learning_rate=1e-3, max_length=32)


def by_hand(teacher: Tensor, student: Tensor, temperature: float, kept: int = KEPT) -> float:
    """T² · KL(p̃ ‖ q̃) of one token, in double precision."""
    p, q = (logits.double().softmax(-1) for logits in (teacher, student))
    most = p.argsort(descending=True)[:kept]
    buckets = [torch.cat([each[most], 1 - each[most].sum(0, keepdim=True)]) for each in (p, q)]
    flat = [(each ** (1 / temperature)) / (each ** (1 / temperature)).sum() for each in buckets]
    return float(temperature**2 * (flat[0] * (flat[0] / flat[1]).log()).sum())


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_the_loss_is_that_of_the_docstring(temperature: float) -> None:
    random = torch.Generator().manual_seed(0)
    teacher, student = (3 * torch.randn(2, 3, 500, generator=random) for _ in range(2))
    tokens = torch.tensor([[True, True, True], [True, False, False]])
    found = OUTPUT.compared(student, OUTPUT.stored(teacher), tokens, temperature)
    pairs = [(teacher[row, place], student[row, place]) for row, place in tokens.nonzero().tolist()]
    assert float(found) == pytest.approx(np.mean([by_hand(*pair, temperature) for pair in pairs]), rel=2e-3)
    assert float(OUTPUT.compared(teacher, OUTPUT.stored(teacher), tokens, temperature)) == pytest.approx(0, abs=1e-4)


def test_a_small_vocabulary_is_compared_as_a_whole() -> None:
    random = torch.Generator().manual_seed(0)
    teacher, student = (2 * torch.randn(2, 3, 40, generator=random) for _ in range(2))
    student.requires_grad_()
    tokens, gradients = torch.ones(2, 3, dtype=torch.bool), []
    losses = [each.compared(student, each.stored(teacher), tokens, 2.0) for each in (OUTPUT, TokenLogits())]
    for loss in losses:
        gradients.append(torch.autograd.grad(loss, student)[0])
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=2e-3)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-2, atol=1e-4)


def test_a_sure_student_has_finite_gradients() -> None:
    student = torch.zeros(1, 1, 100)
    student[..., 3] = 80.0
    student.requires_grad_()
    stored = OUTPUT.stored(torch.randn(1, 1, 100, generator=torch.Generator().manual_seed(0)))
    OUTPUT.compared(student, stored, torch.ones(1, 1, dtype=torch.bool), 2.0).backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()
    assert student.grad[..., 3] > 0, "it becomes less sure"


def examples_of(words: PreTrainedTokenizerFast) -> Examples:
    return objective_for(DATA).training_examples(words, None, 20)


def test_a_token_takes_as_many_bytes_as_are_said(tokenizer: PreTrainedTokenizerFast) -> None:
    examples, model = examples_of(of_decoders(tokenizer)), gpt2(vocab_size=300)
    found = compute_teacher_logits(model, examples, np.array([0, 2]), (OUTPUT,), CPU, "fp32")
    assert sum(value.nbytes for name, value in found.items() if not name.endswith(".starts")) == 2 * 20 * (
        OUTPUT.bytes_per_token
    )
    assert found["logits.starts"][:4].tolist() == [0, 20, 20, 40]


def test_parts_of_a_batch_have_the_gradients_of_the_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    words, teacher = of_decoders(tokenizer), gpt2(vocab_size=300, n_layer=1)
    texts = ("good", "bad good word1 word2 word3 word4", "good " * 30)
    examples = objective_for(PassageData(DATA.task, texts, texts)).training_examples(words, None, 12)
    which = np.arange(len(examples))
    found = compute_teacher_logits(teacher, examples, which, (OUTPUT,), CPU, "fp32")
    loss = DistillationLoss.from_logits(found, (OUTPUT,), Teacher(alpha=0.5))
    gradients = []
    for parts in (1, 2, len(which)):
        model, chosen = gpt2(vocab_size=300), settings(accumulation_steps=parts)
        options: dict[str, Any] = {"loss": NextTokenCrossEntropy(), "settings": chosen, "seed": 0}
        batch = BatchGradients(model=model, forward=model, examples=examples, distillation=loss, **options)
        batch.compute(which, 0)
        gradients.append(model.transformer.h[0].mlp.c_fc.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-4, atol=1e-6)


@pytest.fixture
def folder(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Path:
    """Of a student, a teacher, and a teacher of other tokens."""
    for name, model in (
        ("student", gpt2(vocab_size=300)),
        ("teacher", gpt2(vocab_size=300, n_layer=3)),
        ("other", gpt2()),
    ):
        model.save_pretrained(tmp_path / name)
        of_decoders(tokenizer).save_pretrained(tmp_path / name)
    return tmp_path


@pytest.mark.slow
def test_a_pretrained_model_teaches_and_the_result_is_as_near_as_it_can_be(folder: Path) -> None:
    training = Training(max_steps=60, batch_size=16, learning_rate=1e-2, max_length=32)
    options: dict[str, Any] = {"density": 0.5, "training": training, "method": "magnitude", "dense_baseline": False}
    examples, near = None, []
    for teacher in (None, Teacher(folder / "teacher", alpha=1.0)):
        result = compress(folder / "student", DATA, teacher=teacher, **options)
        examples = examples or objective_for(DATA).validation_examples(result.tokenizer, result.model.config, 32)
        batch = examples.batch(np.arange(len(examples)), CPU)
        with torch.no_grad():
            said = type(result.model).from_pretrained(folder / "teacher")(**batch).logits
            answered: Any = result.model(**batch)
        near.append(float(OUTPUT.compared(answered.logits, OUTPUT.stored(said), batch["attention_mask"].bool(), 1.0)))
    assert near[1] < 0.5 * near[0]
    assert result.info.spec["teacher"]["alpha"] == 1.0


@pytest.mark.slow
def test_the_dense_model_teaches_with_hidden_states(folder: Path) -> None:
    options: dict[str, Any] = {"method": "magnitude", "density": 0.5, "training": SHORT}
    result = compress(folder / "student", DATA, teacher=Teacher(hidden_states=1.0), **options)
    assert result.info.spec["teacher"]["hidden_states"] == 1.0
    assert "dense/perplexity" in result.metrics


def test_a_teacher_of_other_tokens_is_refused(folder: Path) -> None:
    with pytest.raises(CompressionError, match=r"must predict the tokens of the student, 300 of .* with 40; give"):
        compress(folder / "student", DATA, density=0.5, training=SHORT, teacher=Teacher(folder / "other"))


@pytest.mark.slow
def test_a_store_without_bounds_is_refused_before_training(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "MOST_STORED", 200_000)
    with pytest.raises(ValueError, match=r"^teacher must be none .* at most 0 GiB .* and 741 tokens have 0\.0; take"):
        compress(folder / "student", DATA, density=0.5, training=SHORT, teacher=Teacher())
    options: dict[str, Any] = {"method": "magnitude", "density": 0.5, "training": SHORT}
    compress(folder / "student", DATA, teacher=None, dense_baseline=False, **options)
