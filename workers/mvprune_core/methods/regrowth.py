"""Methods of constant density: small weights are dropped at intervals, and as many others are grown."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from mvprune.data.run_length import mask_interval_of
from mvprune.spec.kept import kept_count
from mvprune.spec.rules import interval_problems
from mvprune_core.base.options import refuse
from mvprune_core.methods.base import PruningStep, Selection, TopV
from mvprune_core.pruning.matrices import ALMOST_ZERO, Matrix
from mvprune_core.pruning.schedule import RunTooShort, Schedule
from mvprune_core.pruning.selection import select_top


@dataclass(frozen=True)
class Regrowth(TopV):
    """Sparse training at a constant density. Before the first step the largest weights are kept, by |W|.

    The papers start from a random mask, which destroys a pretrained model. The mask of the largest weights does not.
    Blocks of weights that are kept or dropped together are dropped by their mean |W|, and grown by the mean of what
    weights are grown by.

    Args:
        selection: of the first mask. "local": each matrix has the density; "global": all matrices together have it.
        drop_fraction: α, the fraction of each matrix's kept weights that the first updates drop, in (0, 1).
        mask_interval: optimizer steps between two updates of the masks. None: 100, or a twentieth of the steps if that
            is less.
        mask_until: fraction of the steps after which the masks stay as they are, in (0, 1].

    Raises:
        ValueError: an option out of range.
    """

    fixed: ClassVar[bool] = True
    ranks_weights: ClassVar[bool] = False
    takes_blocks: ClassVar[bool] = True

    selection: Selection = "local"
    drop_fraction: float = 0.3
    mask_interval: int | None = None
    mask_until: float = 0.75

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        """At the final density from the first step on."""
        return Schedule("one_shot", pruning_start=0.0)

    def for_run(self, total_steps: int) -> Self:
        interval = self.mask_interval or mask_interval_of(total_steps)
        refuse(interval_problems(interval, self.mask_until, total_steps), error=RunTooShort)
        return replace(self, mask_interval=interval)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return weight.abs()

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        if not self.updates(step.number, step) or step.scheduled_density(self.schedule) == 1:
            return super().update_masks(matrices, step, control)
        fraction = self.drop_fraction / 2 * (1 + math.cos(math.pi * step.number / self._last_of(step.total_steps)))
        size = step.selector.block
        before = [matrix.by_block(matrix.kept, size)[:, 0] if size > 1 else matrix.kept for matrix in matrices]
        counts = [int(kept.sum()) for kept in before]
        dropped = [kept_count(count, fraction) for count in counts]
        grown = self.grown_counts(matrices, size, before, dropped)
        for index, matrix in enumerate(matrices):
            _exchange(
                matrix,
                size,
                before[index],
                left=counts[index] - dropped[index],
                grown=grown[index],
                importance=matrix.means(self.growth_importance(matrix), size),
                seed=step.seed + index,
            )
        return step.current_density

    def mask_is_final(self, step: PruningStep) -> bool:
        return step.number >= self._last_of(step.total_steps)

    @abstractmethod
    def growth_importance(self, matrix: Matrix) -> Tensor:
        """What the weights that are not kept are ranked by, in their shape: the largest are grown. Not negative."""

    def grown_counts(
        self, matrices: Sequence[Matrix], size: int, kept: Sequence[Tensor], dropped: Sequence[int]
    ) -> list[int]:
        """How many blocks are grown in each matrix; as many in all as are dropped.

        Args:
            matrices: the pruned matrices.
            size: weights of a block.
            kept: the blocks that were kept before, of each matrix.
            dropped: how many of them are dropped.
        """
        return list(dropped)

    def updates(self, number: int, step: PruningStep) -> bool:
        """Whether the masks are updated after `number` steps."""
        if self.mask_interval is None:
            raise TypeError("for_run must be applied first")
        return 0 < number < self._last_of(step.total_steps) and number % self.mask_interval == 0

    def _last_of(self, total_steps: int) -> int:
        """Steps after which nothing is dropped."""
        return max(1, round(self.mask_until * total_steps))


def _exchange(matrix: Matrix, size: int, kept: Tensor, *, left: int, grown: int, importance: Tensor, seed: int) -> None:
    """Writes the mask that keeps the `left` largest of the kept blocks and `grown` others; new weights are 0."""
    weight = matrix.weight.detach()
    stay = _largest(matrix.means(weight.abs(), size), kept, left, seed)
    mask = stay | _largest(importance, ~stay, grown, seed)
    matrix.mask.copy_(matrix.of_blocks(mask, size))
    weight.masked_fill_(matrix.of_blocks(mask & ~kept, size), ALMOST_ZERO)


def _largest(values: Tensor, among: Tensor, count: int, seed: int) -> Tensor:
    """Bool, of the shape of `values`: the `count` largest of those where `among` is True."""
    found = among.clone()
    chosen = torch.empty(int(among.sum()), dtype=torch.bool, device=among.device)
    select_top([values[among]], count, [chosen], seed)
    found[among] = chosen
    return found
