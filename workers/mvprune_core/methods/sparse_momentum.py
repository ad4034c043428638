"""Sparse momentum: drop by magnitude, divide and grow by momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mvprune_core.methods.base import Matrix, PruningStep
from mvprune_core.methods.regrowth import Regrowth

_MOMENTUM, _SQUARES, _EPSILON = 0.9, 0.999, 1e-8  # Adam's, as in the authors' code
_MOST_GROWN = 0.99  # of the weights of a matrix that are not kept


@dataclass(frozen=True)
class SparseMomentum(Regrowth):
    """Sparse momentum (Dettmers and Zettlemoyer 2019, https://arxiv.org/abs/1907.04840, section 3), for fine-tuning.

    The momentum of a weight is m = M / (√V + 10⁻⁸), with the averages of ∂L/∂W' and of its square that Adam has, here
    of all weights, masked ones too. After every `mask_interval` steps t, each matrix drops the fraction
    α / 2 · (1 + cos(π · t / T)) of its kept weights, those with the smallest |W|. As many as were dropped in all are
    grown: a matrix's share is its mean |m| over the kept weights, relative to the sum over the matrices, and at most
    99 % of the weights that it does not keep. What exceeds that goes to the other matrices by their shares. The
    weights with the largest |m| are grown. Those that were not kept before start at 0.

    The number of kept weights is exact, so the correction of the authors' code for rounding is not needed.

    The options are those of `Regrowth`; α is `drop_fraction`.
    """

    name: ClassVar[str] = "sparse_momentum"
    buffer_names: ClassVar[tuple[str, ...]] = ("momentum", "squares")

    drop_fraction: float = 0.5

    def observe(self, matrix: Matrix, grad: Tensor, step: PruningStep) -> None:
        matrix.buffers["momentum"].lerp_(grad.float(), 1 - _MOMENTUM)
        matrix.buffers["squares"].mul_(_SQUARES).addcmul_(grad, grad, value=1 - _SQUARES)

    def growth_importance(self, matrix: Matrix) -> Tensor:
        return matrix.buffers["momentum"].abs() / (matrix.buffers["squares"].sqrt() + _EPSILON)

    def grown_counts(
        self, matrices: Sequence[Matrix], size: int, kept: Sequence[Tensor], dropped: Sequence[int]
    ) -> list[int]:
        means = torch.stack(
            [
                (matrix.means(self.growth_importance(matrix), size) * mask).sum(dtype=torch.float64)
                / mask.sum().clamp_min(1)
                for matrix, mask in zip(matrices, kept, strict=True)
            ]
        )
        free = [
            mask.numel() - int(mask.sum()) + count for mask, count in zip(kept, dropped, strict=True)
        ]  # after the drop
        return shared_out(sum(dropped), means.tolist(), free)


def shared_out(count: int, shares: Sequence[float], free: Sequence[int]) -> list[int]:
    """Divides `count` in proportion to `shares`, in whole numbers: at most 99 % of `free` each, where that suffices.

    Args:
        count: at most the sum of `free`.
        shares: not negative.
        free: the most that each may have.
    """
    given = [0] * len(shares)
    for limits in ([int(_MOST_GROWN * room) for room in free], list(free)):
        while count:
            open_ = [index for index, limit in enumerate(limits) if given[index] < limit]
            if not open_:
                break
            weights = [shares[index] for index in open_]
            total = sum(weights)
            if total <= 0:
                weights, total = [1.0] * len(open_), float(len(open_))
            parts = [int(count * weight / total) for weight in weights]
            if not any(parts):  # less than one for each: the largest shares first
                parts = [0] * len(open_)
                for position in sorted(range(len(open_)), key=lambda position: -weights[position])[:count]:
                    parts[position] = 1
            for index, part in zip(open_, parts, strict=True):
                added = min(part, limits[index] - given[index])
                given[index] += added
                count -= added
    return given
