from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.conftest import sentences
from tests.unit.core.training_runs import Recorder
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BartConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DistilBertConfig,
    GPT2Config,
    ModernBertConfig,
    T5Config,
)

from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Reason, Teacher, Training, compress
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.tasks import Objective
from mvprune_core.training.distillation import HiddenStates

QUICK = Training(max_steps=30, batch_size=32, learning_rate=5e-3)
IDS = torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0], [2, 3, 0, 0]])
ATTENDED = IDS.ne(0).long()


class States(nn.Module):
    """A model whose hidden states are given."""

    def __init__(self, *states: Tensor) -> None:
        super().__init__()
        self.states = states

    def forward(self, input_ids: Tensor, output_hidden_states: bool, **others: Tensor) -> dict[str, Any]:
        assert output_hidden_states
        return {"hidden_states": tuple(state[input_ids[:, 1]] for state in self.states)}


def relative(student: Tensor, teacher: Tensor, attended: Tensor) -> Tensor:
    """Of one example, written out."""
    pairs = [(s, t) for s, t, here in zip(student, teacher, attended, strict=True) if here]
    return sum(((s - t) ** 2).sum() for s, t in pairs) / sum((t**2).sum() for _, t in pairs)


@pytest.mark.parametrize("tokens_have_labels", [False, True])
def test_loss_by_hand_in_one_pass_and_in_parts(tokens_have_labels: bool) -> None:
    torch.manual_seed(0)
    taught, learned = torch.randn(3, 10, 4, 5), torch.randn(3, 10, 4, 5)  # layers, example by its second token, …
    hidden = HiddenStates(States(*taught), 0.5, "fp32", tokens_have_labels)
    labels = torch.zeros(3, 4, dtype=torch.long) if tokens_have_labels else torch.zeros(3, dtype=torch.long)
    batch = {"input_ids": IDS, "attention_mask": ATTENDED, "labels": labels}

    def loss(some: slice) -> Tensor:
        part = {name: value[some] for name, value in batch.items()}
        return hidden.loss(States(*learned)(**part, output_hidden_states=True), part)

    examples = []
    for row, attended in zip(IDS, ATTENDED, strict=True):
        layers = [relative(learned[layer, row[1]], taught[layer, row[1]], attended) for layer in (1, 2)]
        examples.append((layers[0] + layers[1]) / 2)
    weights = torch.tensor([4.0, 3.0, 2.0]) if tokens_have_labels else torch.ones(3)
    expected = 0.5 * (torch.stack(examples) * weights).sum() / weights.sum()
    torch.testing.assert_close(loss(slice(3)), expected)
    shares = weights[0] / weights.sum(), weights[1:].sum() / weights.sum()
    torch.testing.assert_close(loss(slice(1)) * shares[0] + loss(slice(1, 3)) * shares[1], expected)


ENCODER_DECODER: dict[str, Any] = {"d_model": 16, "vocab_size": 20, "eos_token_id": 3, "pad_token_id": 0}
ENCODER_DECODER |= {"decoder_start_token_id": 0}
SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


@pytest.mark.parametrize(
    "config",
    [
        AlbertConfig(**SMALL, vocab_size=20, embedding_size=8),
        DistilBertConfig(dim=16, n_layers=2, n_heads=2, hidden_dim=16, vocab_size=20),
        DebertaV2Config(**SMALL, vocab_size=20),
        ModernBertConfig(**SMALL, vocab_size=20, pad_token_id=0),
        GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=20, pad_token_id=0),
        T5Config(**ENCODER_DECODER, d_kv=8, num_heads=2, d_ff=16, num_layers=1),
        BartConfig(**ENCODER_DECODER, encoder_layers=2, decoder_layers=1, num_labels=2),
    ],
    ids=lambda config: config.model_type,
)
def test_every_matrix_of_an_architecture_is_taught_and_padding_teaches_nothing(config: Any) -> None:
    torch.manual_seed(0)
    teacher, student = (AutoModelForSequenceClassification.from_config(config).eval() for _ in range(2))
    hidden = HiddenStates(teacher, 1.0, "fp32")

    def loss(model: nn.Module, ids: Tensor) -> Tensor:
        batch = {"input_ids": ids, "attention_mask": ATTENDED[:2]}
        return hidden.loss(model(**batch, output_hidden_states=True), batch)

    found = loss(student, IDS[:2])
    found.backward()
    assert all(layer.weight.grad.any() for layer in prunable_layers(student).values())
    assert all(weight.grad is None for weight in teacher.parameters())
    with torch.no_grad():
        torch.testing.assert_close(loss(student, IDS[:2].masked_fill(ATTENDED[:2] == 0, 5)), found)
        assert loss(teacher, IDS[:2]) == 0


def gap(folder: Path, model: nn.Module, objective: Objective, batch: dict[str, Tensor]) -> float:
    """How far a model's hidden states are from those of the one in the folder."""
    teacher = load_model(find_model(folder, None), objective, seed=0).model.eval()
    with torch.no_grad():
        return HiddenStates(teacher, 1.0, "fp32").loss(model.eval()(**batch, output_hidden_states=True), batch).item()


@pytest.mark.slow
def test_hidden_states_come_closer(
    one_layer: Path, data: ClassificationData, objective: Objective, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "training": QUICK,
        "cache": tmp_path / "cache",
        "dense_baseline": False,
    }
    exact = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
    dense = compress(one_layer, data, density=1.0, **exact, **options)
    teacher = tmp_path / "teacher"
    dense.model.save_pretrained(teacher)
    dense.tokenizer.save_pretrained(teacher)
    batch = {"input_ids": IDS, "attention_mask": ATTENDED}
    gaps = []
    for weight in (0.0, 1.0):
        result = compress(one_layer, data, density=0.3, teacher=Teacher(teacher, hidden_states=weight), **options)
        gaps.append(gap(teacher, result.model, objective, batch))
    assert gaps[1] < 0.7 * gaps[0]
    own = compress(one_layer, data, density=0.3, teacher=Teacher(hidden_states=1.0), **options)
    assert own.info.spec["teacher"]["hidden_states"] == 1.0
    for name, value in result.model.state_dict().items():
        assert torch.equal(own.model.state_dict()[name], value), (
            "the dense model teaches what its copy in a folder does"
        )


@pytest.fixture
def few(data: ClassificationData) -> ClassificationData:
    """32 examples: 10 steps of 16 pass over them five times."""
    return replace(data, train=sentences(32, 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "teacher", "weight"),
    [
        (9, Teacher(), 0.0),
        (10, Teacher(), 1.0),
        (10, Teacher(hidden_states=0.0), 0.0),
        (6, Teacher(hidden_states=0.5), 0.5),
    ],
)
def test_hidden_states_are_matched_where_examples_are_passed_over_five_times(
    model_folder: Path, few: ClassificationData, steps: int, teacher: Teacher, weight: float
) -> None:
    training = Training(max_steps=steps, batch_size=16)
    result = compress(
        model_folder, few, method="magnitude", density=0.3, teacher=teacher, training=training, dense_baseline=False
    )
    assert result.info.spec["teacher"]["hidden_states"] == weight


@pytest.mark.slow
def test_a_second_run_that_matches_hidden_states_trains_at_once(
    model_folder: Path, few: ClassificationData, tmp_path: Path
) -> None:
    phases = []
    for density in (0.3, 0.5):
        heard = Recorder()
        training = Training(max_steps=10, batch_size=16)
        compress(
            *(model_folder, few),
            method="soft_movement",
            density=density,
            training=training,
            cache=tmp_path,
            callback=heard,
        )
        phases.append(heard.phases)
    first, second = phases
    assert first == ["loading", "dense", "evaluating", "teaching", "pruning", "evaluating"]
    assert second == ["loading", "pruning", "evaluating"]


def test_a_teacher_of_another_pretraining_is_not_matched_unasked(
    model_folder: Path, save: Callable[..., Path], bert_config: Callable[..., Any], few: ClassificationData
) -> None:
    torch.manual_seed(2)
    teacher = Teacher(save(BertForSequenceClassification(bert_config()), "fine-tuned"))
    training = Training(max_steps=10, batch_size=16)
    result = compress(
        model_folder, few, method="magnitude", density=0.3, teacher=teacher, training=training, dense_baseline=False
    )
    assert result.info.spec["teacher"]["hidden_states"] == 0.0


@pytest.mark.slow
def test_a_model_that_does_not_give_its_hidden_states(
    model_folder: Path, few: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = BertForSequenceClassification.forward

    def silent(self: Any, *inputs: Any, output_hidden_states: bool = False, **options: Any) -> Any:
        return whole(self, *inputs, **options)

    monkeypatch.setattr(BertForSequenceClassification, "forward", silent)
    options: dict[str, Any] = {"method": "magnitude", "density": 0.3, "training": Training(max_steps=10, batch_size=16)}
    assert compress(model_folder, few, **options).info.spec["teacher"]["hidden_states"] == 0.0
    with pytest.raises(CompressionError, match="it gives no hidden states") as raised:
        compress(model_folder, few, teacher=Teacher(hidden_states=1.0), **options)
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


def _more_layers(folder: Path, config: Callable[..., Any]) -> None:
    BertForSequenceClassification(config(num_hidden_layers=3)).save_pretrained(folder)


def _shorter(folder: Path, config: Callable[..., Any]) -> None:
    BertForSequenceClassification(config(max_position_embeddings=6)).save_pretrained(folder)


def _other_words(folder: Path, config: Callable[..., Any]) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    words = tokenizer["model"]["vocab"]
    words["good"], words["bad"] = words["bad"], words["good"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_more_layers, r"is a bert of 3 layers of \d+, the student a bert of 2 layers of \d+;"),
        (_shorter, "takes shorter inputs;"),
        (_other_words, "has another tokenizer;"),
    ],
)
def test_a_teacher_that_is_not_like_the_student_is_refused(
    model_folder: Path,
    save: Callable[..., Path],
    bert_config: Callable[..., Any],
    data: ClassificationData,
    change: Callable[[Path, Callable[..., Any]], None],
    said: str,
) -> None:
    folder = save(BertForSequenceClassification(bert_config()), "fine-tuned")
    change(folder, bert_config)
    with pytest.raises(CompressionError, match=rf"^teacher\.hidden_states must be 0 .*, got .* {said}") as raised:
        compress(
            model_folder,
            data,
            method="magnitude",
            density=0.3,
            training=QUICK,
            teacher=Teacher(folder, hidden_states=1.0),
        )
    assert raised.value.reason is Reason.INVALID_MODEL
