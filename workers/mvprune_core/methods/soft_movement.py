"""Soft movement pruning: one threshold for all scores, and a penalty on the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mvprune_core.methods.base import PruningStep, Selection
from mvprune_core.methods.movement import MovementScores
from mvprune_core.methods.penalty import scheduled_penalty
from mvprune_core.pruning.elementwise import SigmoidPenalty
from mvprune_core.pruning.matrices import Gates

_PENALTY = 400.0


@dataclass(frozen=True)
class SoftMovement(MovementScores):
    """Soft movement pruning (Sanh, Wolf and Rush 2020, https://arxiv.org/abs/2005.07683, section 4).

    The forward pass uses W' = M ⊙ W with M = [σ(S + S₀) > τ], the same τ for every matrix. S₀ and the gradients are
    those of `Movement`, and the loss has the penalty λ(t) · mean over matrices of mean σ(S). So matrices end with
    different densities.

    In the paper τ is fixed, and the density results from λ. Here τ is set after every step so that the density is
    exactly that of the schedule.

    Args:
        schedule: the density over the steps; λ(t) grows as the density falls.
        score_learning_rate: learning rate of the scores (AdamW, no weight decay); by default that of `Movement`.
        initial_scores: S₀: "magnitude", or "zero" as in the paper.
        penalty: λ at the final density; by default the paper's 400 for BERT-base, and the same per weight in models of
            other sizes.

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "soft_movement"

    penalty: float | None = None

    @property
    def selection(self) -> Selection:  # type: ignore[override]
        """One threshold for all matrices."""
        return "global"

    def penalty_on_scores(
        self, gates: Sequence[Gates], step: PruningStep, control: dict[str, Tensor]
    ) -> SigmoidPenalty | None:
        return scheduled_penalty(gates, self.penalty, _PENALTY, self.schedule, step)
