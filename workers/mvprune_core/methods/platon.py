"""PLATON: sensitivity of the loss, times its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from mvprune_core.methods.base import Matrix, PruningStep, Selection, TopV
from mvprune_core.pruning.schedule import Schedule
from mvprune_core.pruning.selection import Importance

_WINDOW = 10  # steps, and at most a tenth of those until the density is final


@dataclass(frozen=True)
class Platon(TopV):
    """PLATON (Zhang et al. 2022, https://arxiv.org/abs/2206.12562, section 3).

    The sensitivity of a weight is I = |W · ∂L/∂W'|, averaged over a window of ten steps, or fewer in runs of less than
    a hundred. After each window, Ī ← β₁ · Ī + (1 − β₁) · I and Ū ← β₂ · Ū + (1 − β₂) · |I − Ī| (equations 7 and 8). The
    weights with the largest Ī · Ū are kept: a weight stays if its sensitivity is large or uncertain. Masks change after
    each window.

    Masked weights have a sensitivity too, so they can come back. The authors' code sets them to 0 and goes on training
    them; here W keeps their values, and only kept weights are trained, as in the other methods.

    Args:
        schedule: the density over the steps.
        selection: "local": top-v in each matrix; "global": top-v over all matrices together.
        sensitivity_decay: β₁, in [0, 1).
        uncertainty_decay: β₂, in [0, 1).

    Raises:
        ValueError: an option out of range.
    """

    name: ClassVar[str] = "platon"
    needs_dense_steps: ClassVar[bool] = True
    buffer_names: ClassVar[tuple[str, ...]] = ("window", "sensitivity", "uncertainty")

    schedule: Schedule = field(default_factory=Schedule)
    selection: Selection = "global"
    sensitivity_decay: float = 0.85
    uncertainty_decay: float = 0.95

    def observe(self, matrix: Matrix, grad: Tensor, step: PruningStep) -> None:
        window, steps = matrix.buffers["window"], self._window(step)
        window.add_((matrix.weight.detach() * grad).abs_(), alpha=1 / steps)
        if (step.number + 1) % steps:
            return
        sensitivity, uncertainty = matrix.buffers["sensitivity"], matrix.buffers["uncertainty"]
        sensitivity.lerp_(window, 1 - self.sensitivity_decay)
        uncertainty.lerp_(window.sub_(sensitivity).abs_(), 1 - self.uncertainty_decay)
        window.zero_()

    def update_masks(self, matrices: Sequence[Matrix], step: PruningStep, control: dict[str, Tensor]) -> float | Tensor:
        ends_window = step.number > 0 and step.number % self._window(step) == 0
        if ends_window or step.number == self.schedule.pruning_end(step.total_steps):
            return super().update_masks(matrices, step, control)
        self._keep(matrices)
        return step.current_density

    def importance(self, matrix: Matrix, index: int, step: PruningStep) -> Importance:
        return matrix.buffers["sensitivity"] * matrix.buffers["uncertainty"]

    def _window(self, step: PruningStep) -> int:
        """Steps of a window."""
        return max(1, min(_WINDOW, self.schedule.pruning_end(step.total_steps) // 10))
