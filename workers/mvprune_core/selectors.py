"""Which weights stay at a density: the most important ones, each for itself or in groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mvprune_core.elementwise import in_parallel
from mvprune_core.matrices import Matrix
from mvprune_core.selection import Importance, kept_count, materialize, select_top, select_top_on_device

Selection = Literal["local", "global"]


@dataclass(frozen=True)
class Ranking:
    """How a method ranks weights at a step.

    Attributes:
        importance: what the weights of a matrix with an index are ranked by, in its shape; the larger, the sooner a
            weight is kept.
        of_groups: what groups of weights are ranked by: see `TopV.importance_of_groups`.
        selection: "local": weights compete in each matrix; "global": in all matrices together.
        seed: seed of the choice among equal values.
    """

    importance: Callable[[Matrix, int], Importance]
    of_groups: Callable[[Tensor, int], Tensor]
    selection: Selection
    seed: int


class Selector(ABC):
    """Chooses the weights that stay, by the importance that a method gives them. It holds no state of a run."""

    def nearest(self, density: float) -> float:
        """The density nearest to `density` that the selector can reach."""
        return density

    @abstractmethod
    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        """Writes the masks.

        Args:
            matrices: the pruned matrices.
            ranking: which weights are kept first.
            density: fraction of the weights to keep, below 1; one that `nearest` returned.
        """


class Weights(Selector):
    """The ⌊v · n⌋ most important weights, each for itself."""

    def select(self, matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
        importance, seed = ranking.importance, ranking.seed
        if ranking.selection == "global":
            count = kept_count(sum(matrix.weight.numel() for matrix in matrices), density)
            importances = [importance(matrix, index) for index, matrix in enumerate(matrices)]
            select_top(importances, count, [matrix.mask for matrix in matrices], seed)
        elif matrices[0].weight.device.type == "cpu":

            def select_one(index: int, matrix: Matrix) -> None:
                count = kept_count(matrix.weight.numel(), density)
                select_top([importance(matrix, index)], count, [matrix.mask], seed + index)

            in_parallel(select_one, matrices)
        else:
            _select_on_device(matrices, ranking, density)


WEIGHTS = Weights()


def _select_on_device(matrices: Sequence[Matrix], ranking: Ranking, density: float) -> None:
    """Selects in all matrices of one size at once: many small kernels would leave a device idle."""
    sizes: dict[int, list[tuple[int, Matrix]]] = {}
    for index, matrix in enumerate(matrices):
        sizes.setdefault(matrix.weight.numel(), []).append((index, matrix))
    for size, group in sizes.items():
        rows = torch.stack([materialize(ranking.importance(matrix, index)).reshape(-1) for index, matrix in group])
        count = kept_count(size, density)
        for (_, matrix), mask in zip(group, select_top_on_device(rows, count, ranking.seed + size), strict=True):
            matrix.mask = mask.view(matrix.weight.shape)
