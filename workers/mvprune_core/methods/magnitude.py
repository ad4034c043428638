"""Magnitude pruning: keep the weights far from zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune_core.methods.base import Selection, TopV
from mvprune_core.options import check_choice
from mvprune_core.schedule import Schedule

When = Literal["before", "after"]


@dataclass(frozen=True)
class Magnitude(TopV):
    """Automated gradual pruning by magnitude (Zhu and Gupta 2017, https://arxiv.org/abs/1710.01878).

    The importance of a weight is |W|. The forward pass uses W' = M ⊙ W with M = top-v(|W|); masked weights get no
    gradient, only what momentum and weight decay still do, so one comes back only when others shrink below it.

    Args:
        schedule: how the density falls to its target.
        selection: the density holds in every matrix (local), or over all together (global).
    """

    name: ClassVar[str] = "magnitude"

    schedule: Schedule = field(default_factory=Schedule)
    selection: Selection = "local"

    def __post_init__(self) -> None:
        check_choice("selection", self.selection, Selection)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return weight.abs()


@dataclass(frozen=True)
class OneShotMagnitude(TopV):
    """Magnitude pruning in one go: the mask is chosen once, by |W|, and never again.

    Args:
        when: before training, which then mends what is left; or after it, and nothing is mended.
        selection: the density holds in every matrix (local), or over all together (global).
    """

    name: ClassVar[str] = "one_shot_magnitude"
    fixed: ClassVar[bool] = True

    when: When = "after"
    selection: Selection = "local"

    def __post_init__(self) -> None:
        check_choice("selection", self.selection, Selection)
        check_choice("when", self.when, When)

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        """Dense until the one selection."""
        return Schedule("one_shot", warmup=0.0 if self.when == "before" else 1.0)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return weight.abs()
