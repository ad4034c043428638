"""Reweighted proximal pruning: weights shrink to zero by a proximal step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from mvprune.spec.kept import kept_count
from mvprune_core.methods.base import Method, PruningStep
from mvprune_core.pruning.matrices import ALMOST_ZERO, Matrix
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.selection import select_top

_EPSILON = 1e-9


@dataclass(frozen=True)
class RPP(Method):
    """Reweighted proximal pruning, RPP (Guo et al. 2019, https://arxiv.org/abs/1909.12486).

    AdamW minimizes the loss of the task only. After its step from w to a, the proximal operator of a reweighted ℓ1 norm
    is applied, while the density falls:

        W = sign(a) · max(|a| − τ / (|w| + ε), 0),    ε = 10⁻⁹

    A weight that became 0 stays 0. The paper's strength of the penalty, τ divided by the learning rate, is not
    published. Here τ is, at each step, the least number that leaves the density of the schedule: the weights with the
    largest |a| · (|w| + ε) are kept, all matrices together, and τ is the largest of the others. Once the density is
    final, masks stay as they are and nothing shrinks.

    Args:
        schedule: the density over the steps.
    """

    name: ClassVar[str] = "rpp"

    schedule: Schedule = field(default_factory=Schedule)

    def observe(self, matrix: Matrix, grad: Tensor, step: PruningStep) -> None:
        """Keeps w, the weights before AdamW's step, until the masks are updated."""
        after = replace(step, number=step.number + 1)
        if after.scheduled_density(self.schedule) != step.current_density:
            matrix.samples["before"] = matrix.weight.detach().clone()

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        density = step.scheduled_density(self.schedule)
        if density == 1:
            return density
        before = [matrix.kept for matrix in matrices]
        if density == step.current_density:
            for matrix, kept in zip(matrices, before, strict=True):
                matrix.mask.copy_(kept)
            return density
        # Before the first step, the weights are those that AdamW starts from.
        spans = [matrix.samples.get("before", matrix.weight.detach()).abs() + _EPSILON for matrix in matrices]
        products = [
            torch.where(kept, matrix.weight.detach().abs() * span, 0.0)
            for matrix, span, kept in zip(matrices, spans, before, strict=True)
        ]
        count = kept_count(sum(product.numel() for product in products), density)
        select_top(products, count, [matrix.mask for matrix in matrices], step.seed)
        removed = torch.stack([torch.where(m.mask, 0.0, p).max() for m, p in zip(matrices, products, strict=True)])
        threshold = removed.max()
        for matrix, span in zip(matrices, spans, strict=True):
            weight = matrix.weight.detach()
            shrunk = (weight.abs() - threshold / span).clamp_min_(ALMOST_ZERO).copysign_(weight)
            weight.copy_(torch.where(matrix.mask, shrunk, ALMOST_ZERO))
        return density
