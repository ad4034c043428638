"""RigL: drop by magnitude, grow by the gradient of the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from mvprune_core.methods.base import Matrix, PruningStep
from mvprune_core.methods.regrowth import Regrowth


@dataclass(frozen=True)
class RigL(Regrowth):
    """RigL (Evci et al. 2020, https://arxiv.org/abs/1911.11134, algorithm 1), for fine-tuning.

    After every `mask_interval` steps t, each matrix drops the fraction α / 2 · (1 + cos(π · t / T)) of its kept
    weights, those with the smallest |W|, and grows as many: those with the largest |∂L/∂W'| of the last step among the
    weights that are not kept, the dropped ones included. Weights that were not kept before start at 0. T is the step
    after which masks stay as they are.

    The options are those of `Regrowth`; α is `drop_fraction`.
    """

    name: ClassVar[str] = "rigl"
    buffer_names: ClassVar[tuple[str, ...]] = ("gradient",)

    def observe(self, matrix: Matrix, grad: Tensor, step: PruningStep) -> None:
        if self.updates(step.number + 1, step):
            matrix.buffers["gradient"].copy_(grad)

    def growth_importance(self, matrix: Matrix) -> Tensor:
        return matrix.buffers["gradient"].abs()
