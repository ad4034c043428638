"""Movement pruning: keep the weights that move away from zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from mvprune_core.methods.base import Method


@dataclass(frozen=True)
class Movement(Method):
    """Movement pruning, hard top-v (Sanh, Wolf and Rush 2020, https://arxiv.org/abs/2005.07683, section 3).

    Every prunable weight W has a learned score S, zero at first. The forward pass uses W' = M ⊙ W with M = top-v(S);
    the backward pass is straight-through: ∂L/∂S = ∂L/∂W' ⊙ W. Gradient descent thus raises the score of a weight that
    is moving away from zero (equation 3), and scores of masked weights go on moving.

    Args:
        schedule: how the density falls to its target.
        score_learning_rate: learning rate of the scores (AdamW, no weight decay).

    Raises:
        ValueError: `score_learning_rate` is not a positive number.
    """

    name: ClassVar[str] = "movement"
    learned: ClassVar[bool] = True

    score_learning_rate: float = 1e-2

    def __post_init__(self) -> None:
        if not 0 < self.score_learning_rate < float("inf"):
            raise ValueError(f"score_learning_rate: {self.score_learning_rate} given; a positive number is allowed")

    def scores(self, weight: Tensor) -> Tensor:
        return torch.zeros_like(weight, dtype=torch.float32)

    def score_groups(self, scores: Sequence[Parameter]) -> list[dict[str, Any]]:
        return [{"params": list(scores), "lr": self.score_learning_rate, "weight_decay": 0.0}]
