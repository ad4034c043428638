"""A mask that is given and stays as it is, such as that of an earlier result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from torch import Tensor

from mvprune.spec.rules import rewind_problems
from mvprune_core.base.options import refuse
from mvprune_core.methods.base import Matrix, Method, PruningStep, Selection
from mvprune_core.pruning.schedule import RunTooShort, Schedule

InitialWeights = Literal["mask", "model", "random", "shuffled", "shuffled_layers"]


@dataclass(frozen=True)
class LockedMask(Method):
    """Trains the weights that the mask of another model keeps; the mask does not change.

    Every step recovers what pruning cost, as there is no schedule. A model that was pruned once, for example on masked
    language modelling, is fine-tuned for many tasks so (Kurtic et al. 2022, https://arxiv.org/abs/2203.07259, section
    4.2). With the weights of the pretrained model, the mask is a lottery ticket (Chen et al. 2020,
    https://arxiv.org/abs/2007.12223).

    Args:
        initial_weights: the weights that training starts from. "mask": those of the mask's model, in all
            its body; "model": those of the model that is pruned, as for lottery tickets. The others are controls for
            lottery tickets: "random": new random weights in the whole body; "shuffled": those of the model, each
            matrix's in random order; "shuffled_layers": those of the model, the matrices of one kind and shape in
            random order.
        selection: used if the density that is asked for is below the mask's: the largest weights of the mask's model
            are kept. "local": in each matrix; "global": in all matrices together.
        rewind: fraction of the steps, at the start, that train the dense model; the mask applies after them. The
            ticket's weights are then those of an early step of training.

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "locked_mask"
    takes_blocks: ClassVar[bool] = True

    initial_weights: InitialWeights = "mask"
    selection: Selection = "global"
    rewind: float = 0.0

    def for_run(self, total_steps: int) -> Self:
        refuse(rewind_problems(self.rewind, total_steps), error=RunTooShort)
        return self

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        """Dense until the mask applies."""
        return Schedule("one_shot", pruning_start=self.rewind)

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        density = step.scheduled_density(self.schedule)
        if density < 1:
            for matrix in matrices:
                if matrix.given is None:
                    raise TypeError(f"{matrix.name} must have a given mask")
                matrix.mask.copy_(matrix.given)
        return density

    def mask_is_final(self, step: PruningStep) -> bool:
        return step.scheduled_density(self.schedule) < 1
