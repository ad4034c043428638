"""The density over the steps of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mvprune_core.options import check_choice, check_fraction

Shape = Literal["cubic", "linear", "one_shot"]


class RunTooShort(ValueError):
    """The run has too few steps for its schedule."""


@dataclass(frozen=True)
class Schedule:
    """Density over the steps of a run.

    With T steps in all, w = round(warmup · T), c = round(cooldown · T), final density v and p = (t − w) / (T − w − c):

        t ≤ w          1
        w < t < T − c  v + (1 − v) · (1 − p)³   cubic: automated gradual pruning (Zhu and Gupta 2017,
                                                https://arxiv.org/abs/1710.01878, equation 1)
                       v + (1 − v) · (1 − p)    linear
        t ≥ T − c      v

    one_shot prunes once, after w steps: 1 for t < w, v for t ≥ w. Its warmup may be 0 (prune before training) or 1
    (prune after training), and it has no cooldown.

    Args:
        shape: cubic, linear or one_shot.
        warmup: fraction of the steps, at the start, that train the dense model.
        cooldown: fraction of the steps, at the end, that train at the final density.

    Raises:
        ValueError: an unknown shape, a fraction out of range, or a schedule that never reaches the final density.
    """

    shape: Shape = "cubic"
    warmup: float = 0.1
    cooldown: float = 0.4

    def __post_init__(self) -> None:
        check_choice("schedule.shape", self.shape, Shape)
        if self.shape == "one_shot":
            check_fraction("schedule.warmup", self.warmup, "[0, 1]")
            return
        check_fraction("schedule.warmup", self.warmup, "[0, 1)")
        check_fraction("schedule.cooldown", self.cooldown, "(0, 1)", "without it the final density is never trained")
        if self.warmup + self.cooldown >= 1:
            raise ValueError(
                "schedule.warmup + schedule.cooldown must be below 1, which leaves steps to prune in, got "
                f"{self.warmup} + {self.cooldown}"
            )

    def check(self, total_steps: int) -> None:
        """Raises RunTooShort if the cooldown, or the time between warmup and cooldown, rounds to no step."""
        if self.shape == "one_shot":
            return
        warm, cool = self._boundaries(total_steps)
        if cool < 1:
            raise RunTooShort(
                f"schedule.cooldown must be at least one step, got {self.cooldown} of {total_steps} steps; take at "
                f"least {math.ceil(1 / self.cooldown)} steps or a longer cooldown"
            )
        if warm + cool >= total_steps:
            raise RunTooShort(
                "schedule.warmup + schedule.cooldown must leave at least one step to prune in, got "
                f"{self.warmup} + {self.cooldown} of {total_steps} steps; take more steps or shorten them"
            )

    def density_at(self, step: int, total_steps: int, density: float) -> float:
        """The density after `step` of `total_steps` updates, in a run that ends at exactly `density`."""
        warm, _ = self._boundaries(total_steps)
        if step >= self.pruning_end(total_steps):
            return density
        if step <= warm:
            return 1.0
        left = 1.0 - (step - warm) / self.pruning_steps(total_steps)
        return density + (1.0 - density) * (left**3 if self.shape == "cubic" else left)

    def pruning_end(self, total_steps: int) -> int:
        """Number of updates after which the density is final."""
        warm, cool = self._boundaries(total_steps)
        return warm if self.shape == "one_shot" else total_steps - cool

    def pruning_steps(self, total_steps: int) -> int:
        """Number of updates over which the density falls; 0 if it falls at once."""
        return self.pruning_end(total_steps) - self._boundaries(total_steps)[0]

    def _boundaries(self, total_steps: int) -> tuple[int, int]:
        return round(self.warmup * total_steps), round(self.cooldown * total_steps)
