"""Movement pruning: keep the weights that move away from zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune_core.methods.base import Matrix, PruningStep, Selection, TopV
from mvprune_core.methods.penalty import scheduled_penalty
from mvprune_core.pruning.elementwise import SigmoidPenalty
from mvprune_core.pruning.matrices import Gates
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.selection import Importance, WeightedScores

InitialScores = Literal["zero", "magnitude"]

_SIZE = 5.0  # c: equals five hundred steps of steady movement at the default learning rate
_STEPS = 1000  # in shorter runs c is larger: with fewer gradients, movement says less


@dataclass(frozen=True)
class MovementScores(TopV):
    """The scores of hard and soft movement pruning; see `Movement`."""

    learned: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    score_learning_rate: float = 1e-2
    initial_scores: InitialScores = "magnitude"

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return torch.zeros_like(weight, dtype=torch.float32)

    def importance(self, matrix: Matrix, index: int, step: PruningStep) -> Importance:
        if matrix.scores is None or self.initial_scores == "zero":
            return super().importance(matrix, index, step)
        size = _SIZE * max(1.0, _STEPS / step.total_steps)
        return WeightedScores(matrix.scores, matrix.weight, size * step.scheduled_density(self.schedule) / matrix.scale)


@dataclass(frozen=True)
class Movement(MovementScores):
    """Movement pruning, hard top-v (Sanh, Wolf and Rush 2020, https://arxiv.org/abs/2005.07683, section 3).

    Every prunable weight W has a learned score S. The forward pass uses W' = M ⊙ W with M = top-v(S); the backward
    pass is straight-through: ∂L/∂S = ∂L/∂W' ⊙ W. So gradient descent raises the score of a weight that moves away from
    zero (equation 3), and scores of masked weights keep changing.

    In the paper, S starts at 0 and is the only criterion, so the first masks depend on a few noisy gradients. Weights
    that one gradient moves together also have correlated errors when they are pruned together: a deep model can fall to
    chance with half of its weights left. Here M = top-v(S + S₀) with S₀ = c · v · |W| / mean |W|: magnitude dominates
    while the density v is high and the scores have seen few gradients, movement when few weights are left. In runs of
    less than a thousand steps, c is inversely proportional to the number of steps.

    Args:
        schedule: the density over the steps.
        selection: "local": top-v in each matrix; "global": top-v over all matrices together.
            None: local, and global with whole structures.
        score_learning_rate: learning rate of the scores (AdamW, no weight decay). The higher it is, the sooner movement
            outweighs magnitude.
        initial_scores: S₀: "magnitude", or "zero" as in the paper.
        penalty: λ at the final density, as in `SoftMovement`; by default there is no penalty. It lowers the scores of
            kept weights, so the masks keep changing (Jiang et al. 2022, https://arxiv.org/abs/2210.06210, section 3).

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "movement"

    selection: Selection | None = None
    penalty: float | None = None

    def penalty_on_scores(
        self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]
    ) -> SigmoidPenalty | None:
        return scheduled_penalty(gates, self.penalty, 0.0, self.schedule, step) if self.penalty else None
