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
from torch import Tensor

from mvprune.data.kinds.embedding.texts import Linked
from mvprune.sources.sentence_transformers import SentenceEmbedding, write_sentence_embedding
from mvprune_core import CompressionError, Teacher, Training, compress
from mvprune_core.tasks.contrastive import CoSent, InBatchNegatives, MarginMse
from mvprune_core.tasks.losses import Loss
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


@pytest.mark.parametrize("kind", ["triplets", "scores"])
def test_a_teacher_and_parts_of_a_batch(kind: str, model_folder: Path) -> None:
    """A model is its own teacher, so its terms are 0; a loss over parts of a batch is the mean of the parts'."""
    objective, loaded = opened(model_folder, linked(kind), learn_pairs=True, pooling="mean")
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    which = np.arange(len(examples))
    found = compute_teacher_logits(loaded.model, examples, which, objective.outputs, CPU, "fp32")
    loaded.model.eval()
    distillation = DistillationLoss.from_logits(found, objective.outputs, Teacher(alpha=1.0))
    options: dict[str, Any] = {"model": loaded.model, "forward": loaded.model, "examples": examples, "seed": 0}
    options |= {"loss": objective.loss(loaded.config)}
    chosen = np.array([3, 9, 0, 7])

    def loss(parts: int, indices: Any, **more: Any) -> float:
        made = BatchGradients(settings=settings(accumulation_steps=parts, dropout=False), **options, **more)
        return made.compute(indices, 0).item()

    assert loss(1, chosen, distillation=distillation) == pytest.approx(0, abs=1e-5)
    halves = [loss(1, chosen[:2]), loss(1, chosen[2:])]
    assert loss(2, chosen) == pytest.approx(sum(halves) / 2, rel=1e-5)
    assert loss(1, chosen) != pytest.approx(loss(2, chosen), rel=1e-3)


def test_a_run_learns_pairs_with_and_without_a_teacher(model_folder: Path, tmp_path: Path) -> None:
    training = Training(max_steps=8, batch_size=4, learning_rate=1e-3)
    for teacher in ("baseline", None):
        options: dict[str, Any] = {"density": 0.5, "training": training, "teacher": teacher, "method": "magnitude"}
        result = compress(model_folder, linked("scores"), learn_pairs=True, cache=tmp_path, **options)
        assert np.isfinite(result.metrics["eval/spearman"])
        assert result.info.spec["learn_pairs"] is True
    with pytest.raises(CompressionError, match="learn_pairs must be unset for training files of plain texts"):
        compress(model_folder, data(SCORED, "sentence-similarity"), density=0.5, learn_pairs=True, training=training)
    with pytest.raises(ValueError, match="learn_pairs must be unset for the task embedding"):
        compress(model_folder, data(), density=0.5, learn_pairs=True, training=training)
