"""Losses of texts that belong together, against those of sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from tests.unit.core.tasks.test_embedding import CPU, DOCUMENTS, JUDGED, QUERIES, SCORED, data, opened, texts
from tests.unit.core.training_runs import settings
from torch import Tensor, nn

from mvprune.data.kinds.embedding.texts import Linked
from mvprune.sources.sentence_transformers import KEY, SentenceEmbedding, write_sentence_embedding
from mvprune_core import Teacher, Training, compress
from mvprune_core.tasks.contrastive import CoSent, InBatchNegatives, MarginMse
from mvprune_core.tasks.losses import Loss
from mvprune_core.tasks.outputs import Vectors
from mvprune_core.training.distillation import DistillationLoss, compute_teacher_logits
from mvprune_core.training.gradients import BatchGradients

ROWS, WIDTH = 7, 6
Draw = Callable[[int], Tensor]


@pytest.fixture
def model(model_folder: Path) -> SentenceTransformer:
    write_sentence_embedding(model_folder, SentenceEmbedding(), 32)
    return SentenceTransformer(str(model_folder))


@pytest.mark.parametrize(
    ("own", "theirs", "parts"),
    [
        (InBatchNegatives("v", 2), losses.MultipleNegativesRankingLoss, 2),
        (InBatchNegatives("v", 3), losses.MultipleNegativesRankingLoss, 3),
        (CoSent("v"), losses.CoSENTLoss, 2),
        (MarginMse("v"), losses.MarginMSELoss, 3),
    ],
    ids=["pairs", "triplets", "scores", "margins"],
)
def test_losses_and_gradients_are_those_of_sentence_transformers(
    own: Loss, theirs: Any, parts: int, model: SentenceTransformer
) -> None:
    torch.manual_seed(0)
    vectors = torch.randn(ROWS, parts, WIDTH, requires_grad=True)
    labels = torch.randn(ROWS)
    labels[1] = labels[0]
    found = own({"v": vectors.flatten(0, 1)}, {"labels": labels})
    gradient = torch.autograd.grad(found, vectors)[0]
    expected = theirs(model).compute_loss_from_embeddings(list(vectors.unbind(1)), labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    np.testing.assert_allclose(gradient, torch.autograd.grad(expected, vectors)[0], atol=1e-5)


def linked(kind: str) -> Any:
    """Training data of texts that belong together."""
    if kind == "scores":
        pairs = tuple(zip(QUERIES, DOCUMENTS, strict=False))
        return replace(data(SCORED, "sentence-similarity"), linked=Linked(pairs, SCORED.scores))
    rows = tuple(zip(QUERIES, DOCUMENTS, texts(12, 9), strict=False))
    rows = tuple(row[:2] for row in rows) if kind == "pairs" else rows
    return replace(
        data(JUDGED, "retrieval"), linked=Linked(rows, tuple(map(float, range(12))) if kind == "margins" else ())
    )


@pytest.mark.parametrize("kind", ["pairs", "triplets", "scores", "margins"])
def test_a_row_is_an_example_whose_texts_are_read_one_by_one(kind: str, model_folder: Path) -> None:
    write_sentence_embedding(model_folder, SentenceEmbedding(prompts={"query": "good ", "document": "bad "}), 32)
    objective, loaded = opened(model_folder, found := linked(kind), learn_pairs=True)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    rows = found.linked.rows
    assert len(examples) == len(rows)
    chosen = np.array([5, 2])
    batch = examples.batch(chosen, CPU)
    prompts = ("", "", "") if kind == "scores" else ("good ", "bad ", "bad ")
    expected = [
        loaded.tokenizer(prompts[place] + text)["input_ids"] for row in chosen for place, text in enumerate(rows[row])
    ]
    read = [ids[mask.bool()].tolist() for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
    assert read == expected
    lengths = [len(ids) for ids in expected]
    parts = len(rows[0])
    assert examples.lengths[chosen].tolist() == [max(lengths[:parts]), max(lengths[parts:])]
    if found.linked.scores:
        assert batch["labels"].tolist() == [5, 2]


@pytest.fixture
def gradients(model_folder: Path) -> Callable[..., BatchGradients]:
    """Computes gradients of a small model on rows of a kind."""

    def make(kind: str, parts: int = 1, **more: Any) -> BatchGradients:
        objective, loaded = opened(model_folder, linked(kind), learn_pairs=True, pooling="mean")
        for module in loaded.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.3
        loaded.model.eval()
        return BatchGradients(
            model=loaded.model,
            forward=loaded.model,
            examples=objective.training_examples(loaded.tokenizer, loaded.config, 32),
            loss=objective.loss(loaded.config),
            settings=settings(accumulation_steps=parts),
            seed=0,
            **more,
        )

    return make


def found_by(made: BatchGradients, rows: Any) -> tuple[float, Tensor]:
    """The loss of a batch and its gradients."""
    made.model.zero_grad()
    loss = made.compute(np.array(rows), 0).item()
    return loss, torch.cat([one.grad.flatten() for one in made.model.parameters() if one.grad is not None])


@pytest.mark.parametrize("kind", ["triplets", "scores"])
def test_a_model_that_is_its_own_teacher_has_nothing_to_learn(kind: str, gradients: Any) -> None:
    made = gradients(kind)
    which = np.arange(len(made.examples))
    found = compute_teacher_logits(made.model, made.examples, which, (Vectors(),), CPU, "fp32")
    taught = replace(made, distillation=DistillationLoss.from_logits(found, (Vectors(),), Teacher(alpha=1.0)))
    assert found_by(taught, [3, 9, 0, 7])[0] == pytest.approx(0, abs=1e-5)
    halves = replace(taught, settings=settings(accumulation_steps=2))
    assert found_by(halves, [3, 9, 0, 7])[0] == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("kind", ["pairs", "triplets", "scores", "margins"])
def test_a_batch_in_parts_has_the_loss_and_the_gradients_of_the_whole(kind: str, parts: int, gradients: Any) -> None:
    rows = [3, 9, 0, 7, 1, 10, 4]
    whole, cut = (found_by(gradients(kind, count), rows) for count in (1, parts))
    assert cut[0] == pytest.approx(whole[0], rel=1e-5)
    assert whole[1].norm() > 1e-3
    np.testing.assert_allclose(cut[1], whole[1], atol=1e-5 * float(whole[1].abs().max()), rtol=1e-4)


def test_both_passes_over_a_part_have_the_same_dropout(gradients: Any) -> None:
    """Against one graph of all parts, whose dropout is drawn part by part."""
    made = gradients("pairs", 3)
    made.model.train()
    rows = np.array([3, 9, 0, 7, 1, 10])
    torch.manual_seed(0)
    loss, gradient = found_by(made, rows)
    after = torch.rand(())
    batch = made.examples.batch(rows, CPU)
    torch.manual_seed(0)
    vectors = [
        made.model(**{name: column[4 * part : 4 * part + 4] for name, column in batch.items()})[KEY]
        for part in range(3)
    ]
    assert torch.rand(()) == after, "what follows is drawn as if there had been one pass"
    expected = InBatchNegatives(KEY, 2).of_vectors(torch.cat(vectors), {})
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    made.model.zero_grad()
    expected.backward()
    own = torch.cat([one.grad.flatten() for one in made.model.parameters() if one.grad is not None])
    np.testing.assert_allclose(gradient, own, atol=1e-5 * float(own.abs().max()))
    made.model.eval()
    assert found_by(made, rows)[0] != pytest.approx(loss, rel=1e-3)


def test_a_batch_in_parts_keeps_the_activations_of_a_part(gradients: Any) -> None:
    def most_kept(parts: int) -> int:
        """The largest number of bytes that are kept for a backward pass at once."""
        sizes = [0, 0]

        class Kept:
            def __init__(self, tensor: Tensor) -> None:
                self.tensor, self.size = tensor, tensor.numel() * tensor.element_size()
                sizes[0] += self.size
                sizes[1] = max(sizes)

            def __del__(self) -> None:
                sizes[0] -= self.size

        made = gradients("pairs", parts)
        with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
            found_by(made, range(12))
        return sizes[1]

    assert most_kept(6) < most_kept(1) / 4


def test_a_run_learns_pairs_with_and_without_a_teacher(model_folder: Path, tmp_path: Path) -> None:
    training = Training(max_steps=8, batch_size=4, learning_rate=1e-3)
    for teacher in ("baseline", None):
        options: dict[str, Any] = {"density": 0.5, "training": training, "teacher": teacher, "method": "magnitude"}
        result = compress(model_folder, linked("scores"), learn_pairs=True, cache=tmp_path, **options)
        assert np.isfinite(result.metrics["eval/spearman"])
        assert result.info.spec["learn_pairs"] is True
    with pytest.raises(
        ValueError, match="learn_pairs must be unset where the texts to train on are plain, got true; give"
    ):
        compress(model_folder, data(SCORED, "sentence-similarity"), density=0.5, learn_pairs=True, training=training)
    with pytest.raises(ValueError, match="learn_pairs must be unset for the task embedding"):
        compress(model_folder, data(), density=0.5, learn_pairs=True, training=training)
