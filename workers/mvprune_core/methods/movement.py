"""Movement pruning: keep the weights that move away from zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune_core.methods.base import Selection, TopV
from mvprune_core.options import check_choice, check_positive
from mvprune_core.schedule import Schedule

InitialScores = Literal["zero", "magnitude"]

_HEAD_START = 1.0  # c: a hundred steps of steady movement at the default learning rate, while nothing is pruned


@dataclass(frozen=True)
class MovementScores(TopV):
    """What hard and soft movement share: how the scores start and how they learn; see `Movement`."""

    learned: ClassVar[bool] = True
    score_growth: ClassVar[float] = 0.5

    schedule: Schedule = field(default_factory=Schedule)
    score_learning_rate: float = 1e-2
    initial_scores: InitialScores = "magnitude"

    def __post_init__(self) -> None:
        check_positive("score_learning_rate", self.score_learning_rate)
        check_choice("initial_scores", self.initial_scores, InitialScores)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        if self.initial_scores == "zero":
            return torch.zeros_like(weight, dtype=torch.float32)
        size = weight.abs().float()
        return size.mul_(_HEAD_START / size.mean().clamp_min(torch.finfo().tiny))


@dataclass(frozen=True)
class Movement(MovementScores):
    """Movement pruning, hard top-v (Sanh, Wolf and Rush 2020, https://arxiv.org/abs/2005.07683, section 3).

    Every prunable weight W has a learned score S. The forward pass uses W' = M ⊙ W with M = top-v(S); the backward
    pass is straight-through: ∂L/∂S = ∂L/∂W' ⊙ W. Gradient descent thus raises the score of a weight that is moving
    away from zero (equation 3), and scores of masked weights go on moving.

    The paper starts from S = 0, so that the first masks follow a few gradients, noise and all. Weights that one
    gradient moves together also err together when they are pruned together: a deep model can fall to chance with half
    of its weights left. Here S = c · |W| / mean |W| at first, which prunes as magnitude does, and at a density of v the
    scores learn at score_learning_rate · v^(-x/2), where the pruned matrices learn at learning_rate · v^(-x): the fewer
    weights are left, the sooner movement outweighs magnitude.

    Args:
        schedule: how the density falls to its target.
        selection: the density holds in every matrix (local), or over all together (global).
        score_learning_rate: learning rate of the scores (AdamW, no weight decay) while nothing is pruned. It decides
            how soon movement outweighs magnitude.
        initial_scores: magnitude, or zero as in the paper.

    Raises:
        ValueError: an option out of its range.
    """

    name: ClassVar[str] = "movement"

    selection: Selection = "local"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("selection", self.selection, Selection)
