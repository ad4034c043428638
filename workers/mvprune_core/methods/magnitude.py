"""Gradual magnitude pruning: keep the weights far from zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mvprune_core.methods.base import Method


@dataclass(frozen=True)
class Magnitude(Method):
    """Automated gradual pruning by magnitude (Zhu and Gupta 2017, https://arxiv.org/abs/1710.01878).

    The importance of a weight is |W|. The forward pass uses W' = M ⊙ W with M = top-v(|W|); masked weights get no
    gradient and keep their value, so one comes back only when others shrink below it.

    Args:
        schedule: how the density falls to its target.
    """

    name: ClassVar[str] = "magnitude"
    learned: ClassVar[bool] = False

    def scores(self, weight: Tensor) -> Tensor:
        return weight.detach().abs()
