"""How the density falls from 1 to its target over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mvprune_core.options import check_choice

Shape = Literal["cubic", "linear", "one_shot"]


class RunTooShort(ValueError):
    """A run has too few steps for its schedule."""


@dataclass(frozen=True)
class Schedule:
    """Density over the steps of a run.

    With T steps in all, w = round(warmup · T), c = round(cooldown · T), target density v and p = (t − w) / (T − w − c):

        t ≤ w          1
        w < t < T − c  v + (1 − v) · (1 − p)³   cubic: automated gradual pruning (Zhu and Gupta 2017,
                                                https://arxiv.org/abs/1710.01878, equation 1)
                       v + (1 − v) · (1 − p)    linear
        t ≥ T − c      v

    one_shot prunes once, after w steps: 1 for t < w, v for t ≥ w. Its warm-up may be 0 (before training) or 1 (after
    it), and it has no cooldown.

    Args:
        shape: cubic, linear or one_shot.
        warmup: fraction of the steps, from the start, that train the dense model.
        cooldown: fraction of the steps, at the end, that train at the target density.

    Raises:
        ValueError: an unknown shape, a fraction out of its range, or a schedule that never reaches its target.
    """

    shape: Shape = "cubic"
    warmup: float = 0.1
    cooldown: float = 0.4

    def __post_init__(self) -> None:
        check_choice("schedule.shape", self.shape, Shape)
        if self.shape == "one_shot":
            if not 0 <= self.warmup <= 1:
                raise ValueError(f"schedule.warmup: {self.warmup} given; a fraction in [0, 1] is allowed")
            return
        if not 0 <= self.warmup < 1:
            raise ValueError(f"schedule.warmup: {self.warmup} given; a fraction in [0, 1) is allowed")
        if not 0 < self.cooldown < 1:
            raise ValueError(
                f"schedule.cooldown: {self.cooldown} given; a fraction in (0, 1) is allowed: "
                "without a cooldown the target density is never trained"
            )
        if self.warmup + self.cooldown >= 1:
            raise ValueError(
                f"schedule: warmup {self.warmup} and cooldown {self.cooldown} together leave no step to prune in; "
                "their sum must be below 1"
            )

    def check(self, total_steps: int) -> None:
        """Refuses a run too short to prune step by step and to train at the target density.

        Raises:
            RunTooShort: the cooldown, or what lies between warm-up and cooldown, rounds to no step at all.
        """
        if self.shape == "one_shot":
            return
        warm, cool = self._boundaries(total_steps)
        if cool < 1:
            raise RunTooShort(
                f"schedule.cooldown: {self.cooldown} of {total_steps} steps is less than one step, so the target "
                f"density would never be trained; take at least {math.ceil(1 / self.cooldown)} steps or more cooldown"
            )
        if warm + cool >= total_steps:
            raise RunTooShort(
                f"schedule: warmup {self.warmup} and cooldown {self.cooldown} leave none of {total_steps} steps to "
                "prune in; take more steps or shorten them"
            )

    def density(self, step: int, total_steps: int, target: float) -> float:
        """Density to train with after `step` of `total_steps` updates; exactly `target` at the end."""
        warm, _ = self._boundaries(total_steps)
        if step >= self.settled(total_steps):
            return target
        if step <= warm:
            return 1.0
        left = 1.0 - (step - warm) / self.falling(total_steps)
        return target + (1.0 - target) * (left**3 if self.shape == "cubic" else left)

    def settled(self, total_steps: int) -> int:
        """Number of updates after which the density is at its target."""
        warm, cool = self._boundaries(total_steps)
        return warm if self.shape == "one_shot" else total_steps - cool

    def falling(self, total_steps: int) -> int:
        """Number of updates in which the density falls; 0 if it does at once."""
        return self.settled(total_steps) - self._boundaries(total_steps)[0]

    def _boundaries(self, total_steps: int) -> tuple[int, int]:
        return round(self.warmup * total_steps), round(self.cooldown * total_steps)
