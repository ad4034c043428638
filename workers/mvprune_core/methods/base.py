"""What a pruning method decides, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from mvprune_core.elementwise import in_parallel
from mvprune_core.schedule import Schedule
from mvprune_core.selection import Importance, kept_count, select_top, select_top_on_device, written

Selection = Literal["local", "global"]


@dataclass
class Matrix:
    """One pruned weight W of the model, its scores S and its mask M, all of one shape.

    Attributes:
        name: of the weight in the model.
        weight: W, with its values underneath the mask too; what the optimizer moves.
        masked: the model's own parameter, W' = M ⊙ W.
        scores: S where the method learns them, float32.
        mask: M, there while masks are renewed: bool, or float32 gates in [0, 1] of methods that are `Gated`.
        scale: mean |W| before training, one value, more than 0; at least a tenth of what matrices have on average.
    """

    name: str
    weight: nn.Parameter
    masked: nn.Parameter
    scores: nn.Parameter | None
    mask: Tensor
    scale: Tensor

    @property
    def kept(self) -> Tensor:
        """Where W' is not 0, bool."""
        return self.masked.detach() != 0


@dataclass(frozen=True)
class Moment:
    """Where a run stands: `step` of `total_steps` updates are done, the density is to end at `target`.

    Attributes:
        seed: of the run.
        density: of the masks as they are.
    """

    step: int
    total_steps: int
    target: float
    seed: int
    density: float | Tensor = 1.0

    def scheduled(self, schedule: Schedule) -> float:
        """The density that a schedule gives now."""
        return schedule.density(self.step, self.total_steps, self.target)


class Method(ABC):
    """How the importance of a weight is measured, and what follows for its mask.

    A subclass is a frozen dataclass of the method's options with a field `schedule`; it holds no state of a run.
    """

    name: ClassVar[str]
    learned: ClassVar[bool] = False  # whether scores are parameters, trained beside the weights

    schedule: Schedule
    score_learning_rate: float | None = None  # of learned scores (AdamW, no weight decay)

    def for_run(self, total_steps: int) -> Self:
        """The method with the defaults that suit a run of so many steps."""
        return self

    def kept(self, sizes: Sequence[int], density: float) -> int:
        """How many weights a run is to leave of matrices with so many weights each, at the density `density`."""
        return kept_count(sum(sizes), density)

    @abstractmethod
    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        """Importance of every entry of `weight`: same shape, float32; the largest are kept.

        Called once, for the starting point, where scores are learned; at every selection where they are not.

        Args:
            weight: W, on any device.
            generator: of the same device, always in the same state for the same matrix of a run.
        """

    @abstractmethod
    def renew(self, matrices: Sequence[Matrix], moment: Moment, control: dict[str, Tensor]) -> float | Tensor:
        """Writes the mask of every matrix for the training steps after `moment`. Never waits for the device.

        Args:
            matrices: of the model, with W' as the last call left it where the method learns no scores.
            moment: where the run stands.
            control: what the method remembers from one step to the next, empty at first: tensors of one value.

        Returns:
            The fraction of the weights that the masks keep; at 1.0 no mask has to be written.
        """

    def add_penalty(self, matrices: Sequence[Matrix], moment: Moment, control: dict[str, Tensor]) -> None:  # noqa: B027
        """Adds the gradient of the method's penalty to the gradient of the scores."""


class Gated(Method):
    """A method whose masks are gates in [0, 1], with a derivative; others are straight-through."""

    @abstractmethod
    def slope(self, mask: Tensor) -> Tensor:
        """∂M/∂S, of the mask's shape."""

    @abstractmethod
    def settle(self, matrices: Sequence[Matrix], control: dict[str, Tensor]) -> None:
        """Writes the masks to evaluate and to store, in place of those to train with."""


class TopV(Method):
    """Keeps the ⌊v · n⌋ weights of the largest scores, v following the schedule.

    Attributes:
        selection: n counts each matrix by itself (local), or all of them together (global).
        fixed: the scores never change, so that there is one mask for each density.
    """

    fixed: ClassVar[bool] = False

    selection: Selection

    def kept(self, sizes: Sequence[int], density: float) -> int:
        if self.selection == "global":
            return super().kept(sizes, density)
        return sum(kept_count(size, density) for size in sizes)

    def renew(self, matrices: Sequence[Matrix], moment: Moment, control: dict[str, Tensor]) -> float | Tensor:
        density = moment.scheduled(self.schedule)
        if density == 1:
            return density
        if self.fixed and density == moment.density:
            for matrix in matrices:
                matrix.mask.copy_(matrix.kept)
            return density
        importance = partial(self.importance, moment=moment)
        if self.selection == "global":
            count = kept_count(sum(matrix.weight.numel() for matrix in matrices), density)
            importances = [importance(matrix, index) for index, matrix in enumerate(matrices)]
            select_top(importances, count, [matrix.mask for matrix in matrices], moment.seed)
        elif matrices[0].weight.device.type == "cpu":

            def renew_one(index: int, matrix: Matrix) -> None:
                count = kept_count(matrix.weight.numel(), density)
                select_top([importance(matrix, index)], count, [matrix.mask], moment.seed + index)

            in_parallel(renew_one, matrices)
        else:
            self._renew_on_device(matrices, density, moment)
        return density

    def importance(self, matrix: Matrix, index: int, moment: Moment) -> Importance:
        """By what a matrix, the index-th, is selected now, of its shape. The scores, if nothing else is said."""
        if matrix.scores is not None:
            return matrix.scores
        weight = matrix.weight.detach()
        return self.scores(weight, generator_of(moment.seed, index, device=weight.device))

    def _renew_on_device(self, matrices: Sequence[Matrix], density: float, moment: Moment) -> None:
        """Matrices of one size together: a device is kept waiting by many small tasks."""
        sizes: dict[int, list[tuple[int, Matrix]]] = {}
        for index, matrix in enumerate(matrices):
            sizes.setdefault(matrix.weight.numel(), []).append((index, matrix))
        for size, group in sizes.items():
            rows = torch.stack([written(self.importance(matrix, index, moment)).reshape(-1) for index, matrix in group])
            count = kept_count(size, density)
            for (_, matrix), mask in zip(group, select_top_on_device(rows, count, moment.seed + size), strict=True):
                matrix.mask = mask.view(matrix.weight.shape)


def generator_of(seed: int, *path: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for one purpose, the same whenever and wherever it is asked for."""
    words = np.random.SeedSequence((seed, *path)).generate_state(1, np.uint64)
    return torch.Generator(device).manual_seed(int(words[0] >> np.uint64(1)))
