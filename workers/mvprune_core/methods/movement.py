"""Movement pruning: keep the weights that move away from zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune_core.methods.base import Matrix, Moment, Selection, TopV
from mvprune_core.options import check_choice, check_positive
from mvprune_core.schedule import Schedule
from mvprune_core.selection import Importance, Sum

InitialScores = Literal["zero", "magnitude"]

_SIZE = 5.0  # c: five hundred steps of steady movement at the default learning rate
_STEPS = 1000  # of runs as short as this or shorter: the fewer gradients are heard, the less they may decide


@dataclass(frozen=True)
class MovementScores(TopV):
    """What hard and soft movement share: by what weights are judged; see `Movement`."""

    learned: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    score_learning_rate: float = 1e-2
    initial_scores: InitialScores = "magnitude"

    def __post_init__(self) -> None:
        check_positive("score_learning_rate", self.score_learning_rate)
        check_choice("initial_scores", self.initial_scores, InitialScores)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return torch.zeros_like(weight, dtype=torch.float32)

    def importance(self, matrix: Matrix, index: int, moment: Moment) -> Importance:
        if matrix.scores is None or self.initial_scores == "zero":
            return super().importance(matrix, index, moment)
        size = _SIZE * max(1.0, _STEPS / moment.total_steps)
        return Sum(matrix.scores, matrix.weight, size * moment.scheduled(self.schedule) / matrix.scale)


@dataclass(frozen=True)
class Movement(MovementScores):
    """Movement pruning, hard top-v (Sanh, Wolf and Rush 2020, https://arxiv.org/abs/2005.07683, section 3).

    Every prunable weight W has a learned score S. The forward pass uses W' = M ⊙ W with M = top-v(S); the backward
    pass is straight-through: ∂L/∂S = ∂L/∂W' ⊙ W. Gradient descent thus raises the score of a weight that is moving
    away from zero (equation 3), and scores of masked weights go on moving.

    In the paper S = 0 at first and decides alone, so that the first masks follow a few gradients, noise and all. And
    weights that one gradient moves together also err together when they are pruned together: a deep model can fall to
    chance with half of its weights left. Here M = top-v(S + S₀) with S₀ = c · v · |W| / mean |W|: magnitude decides
    while the density v is high and the scores know little, movement when few weights are left. In runs of less than a
    thousand steps c is the greater the shorter they are.

    Args:
        schedule: how the density falls to its target.
        selection: the density holds in every matrix (local), or over all together (global).
        score_learning_rate: learning rate of the scores (AdamW, no weight decay). It decides how soon movement
            outweighs magnitude.
        initial_scores: S₀: magnitude, or zero as in the paper.

    Raises:
        ValueError: an option out of its range.
    """

    name: ClassVar[str] = "movement"

    selection: Selection = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("selection", self.selection, Selection)
