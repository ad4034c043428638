"""What a pruning method decides, and nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import Parameter

from mvprune_core.schedule import Schedule


@dataclass(frozen=True)
class Method(ABC):
    """How the importance of a weight is measured. The largest are kept, as many as the schedule says.

    A subclass is a frozen dataclass of the method's options; it holds no state of a run.

    Args:
        schedule: how the density falls to its target.
    """

    name: ClassVar[str]
    learned: ClassVar[bool]  # whether scores are parameters, trained beside the weights

    schedule: Schedule = field(default_factory=Schedule)

    @abstractmethod
    def scores(self, weight: Tensor) -> Tensor:
        """Importance of every entry of `weight`: same shape, float32; only its order counts.

        Called once, for the starting point, where scores are learned; at every selection where they are not.
        """

    def score_groups(self, scores: Sequence[Parameter]) -> list[dict[str, Any]]:
        """Optimizer groups of the learned scores: their learning rate, their weight decay."""
        return []
