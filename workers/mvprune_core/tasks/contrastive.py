"""Losses of the vectors of texts that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from mvprune_core.tasks.losses import Batch, Loss, LossOfVectors

SCALE = 20.0
"""Of cosines before an exponential, as in sentence-transformers; 1 / the temperature."""


@dataclass(frozen=True)
class InBatchNegatives(LossOfVectors):
    """Cross-entropy of the right document of each query among all documents of the batch, by 20 times the cosine
    (Henderson et al. 2017, https://arxiv.org/abs/1705.00652, section 4.4): the other rows' documents, and documents
    that are named as wrong, are its negatives. The MultipleNegativesRankingLoss of sentence-transformers.

    Attributes:
        name: of the model's output, (rows · parts, width), the texts of a row one after the other.
        parts: texts of a row: a query, its document, and perhaps a wrong one.
    """

    parts: int
    labels: ClassVar[tuple[str, ...]] = ()

    def of_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        vectors = _rows(vectors, self.parts, normalize=True)
        documents = vectors[:, 1:].transpose(0, 1).flatten(0, 1)
        scores = SCALE * vectors[:, 0] @ documents.T
        return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


@dataclass(frozen=True)
class CoSent(LossOfVectors):
    """log(1 + Σ exp(20 · (cos(i) − cos(j)))) over all pairs i and j of the batch of which j has the higher score
    (Su 2022, https://kexue.fm/archives/8847; the CoSENTLoss of sentence-transformers). Only the order of the scores,
    the labels, (rows,), matters.

    Attributes:
        name: of the model's output, (rows · 2, width), the texts of a row one after the other.
    """

    def of_vectors(self, vectors: Tensor, batch: Batch) -> Tensor:
        rows, scores = _rows(vectors, 2, normalize=True), batch["labels"]
        cosines = SCALE * (rows[:, 0] * rows[:, 1]).sum(-1)
        differences = (cosines[:, None] - cosines[None, :])[scores[:, None] < scores[None, :]]
        return torch.cat([differences.new_zeros(1), differences]).logsumexp(0)


@dataclass(frozen=True)
class MarginMse(Loss):
    """The squared error of ⟨q, d⟩ − ⟨q, n⟩ for a query q, its document d and a wrong one n, with the margins of a
    cross-encoder as labels, (rows,) (Hofstätter et al. 2020, https://arxiv.org/abs/2010.02666, equation 6).

    Attributes:
        name: of the model's output, (rows · 3, width), the texts of a row one after the other.
    """

    name: str

    def __call__(self, output: Any, batch: Batch) -> Tensor:
        query, right, wrong = _rows(output[self.name], 3, normalize=False).unbind(1)
        return functional.mse_loss((query * right).sum(-1) - (query * wrong).sum(-1), batch["labels"])


def _rows(vectors: Tensor, parts: int, *, normalize: bool) -> Tensor:
    """Shape (rows, parts, width)."""
    found = vectors.float().view(-1, parts, vectors.shape[-1])
    return functional.normalize(found, dim=-1) if normalize else found
