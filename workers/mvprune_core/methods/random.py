"""Random pruning: what any method has to beat."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from mvprune_core.methods.base import Selection, TopV
from mvprune_core.options import check_choice
from mvprune_core.schedule import Schedule


@dataclass(frozen=True)
class Random(TopV):
    """Keeps weights by lot, drawn once from the seed: what one density keeps, any greater one keeps too.

    Args:
        schedule: how the density falls to its target.
        selection: the density holds in every matrix (local), or over all together (global).
    """

    name: ClassVar[str] = "random"
    fixed: ClassVar[bool] = True

    schedule: Schedule = field(default_factory=Schedule)
    selection: Selection = "local"

    def __post_init__(self) -> None:
        check_choice("selection", self.selection, Selection)

    def scores(self, weight: Tensor, generator: torch.Generator) -> Tensor:
        return torch.rand(weight.shape, generator=generator, device=weight.device)
