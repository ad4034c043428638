"""Random pruning, the baseline of all methods."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from mvprune_core.methods.base import Selection, TopV
from mvprune_core.pruning.schedule import Schedule


@dataclass(frozen=True)
class Random(TopV):
    """Random masks with scores drawn once from the seed, so the weights kept at one density are kept at a higher one.

    Args:
        schedule: the density over the steps.
        selection: "local": top-v in each matrix; "global": top-v over all matrices together.
            None: local, and global with whole structures.
    """

    name: ClassVar[str] = "random"
    fixed: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    selection: Selection | None = None

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return torch.rand(weight.shape, generator=generator, device=weight.device)

    def importance_of_groups(self, sums: Tensor, size: int) -> Tensor:
        """The mean, with the same spread for groups of any size: large groups would all be in the middle otherwise."""
        return (sums / size - 0.5) * math.sqrt(size)
