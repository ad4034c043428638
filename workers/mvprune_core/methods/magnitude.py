"""Magnitude pruning: keep the weights that are far from zero."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from mvprune_core.methods.base import Selection, TopV
from mvprune_core.pruning.schedule import Schedule

When = Literal["before", "after"]


@dataclass(frozen=True)
class Magnitude(TopV):
    """Automated gradual pruning by magnitude (Zhu and Gupta 2017, https://arxiv.org/abs/1710.01878).

    The score of a weight is |W|. The forward pass uses W' = M ⊙ W with M = top-v(|W|). Masked weights have no gradient,
    only momentum and weight decay, so a masked weight comes back only when others shrink below it.

    Args:
        schedule: the density over the steps.
        selection: "local": top-v in each matrix; "global": top-v over all matrices together.
            None: local, and global with whole structures.
    """

    name: ClassVar[str] = "magnitude"
    takes_start: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    selection: Selection | None = None

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return weight.abs()


@dataclass(frozen=True)
class OneShotMagnitude(TopV):
    """One-shot magnitude pruning: the mask is chosen once, by |W|.

    Args:
        when: "before" training, which then adapts the remaining weights, or "after" it.
        selection: "local": top-v in each matrix; "global": top-v over all matrices together.
            None: local, and global with whole structures.
    """

    name: ClassVar[str] = "one_shot_magnitude"
    fixed: ClassVar[bool] = True

    when: When = "after"
    selection: Selection | None = None

    @property
    def schedule(self) -> Schedule:  # type: ignore[override]
        """Dense until the mask is chosen."""
        return Schedule("one_shot", pruning_start=0.0 if self.when == "before" else 1.0)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return weight.abs()
