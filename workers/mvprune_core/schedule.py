"""How the density falls from 1 to its target over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Cubic schedule of automated gradual pruning (Zhu and Gupta 2017, https://arxiv.org/abs/1710.01878, equation 1).

    With T steps in all, w = round(warmup · T), c = round(cooldown · T) and target density v:

        density(t) = 1                                             t ≤ w
                     v + (1 − v) · (1 − (t − w) / (T − w − c))³    w < t < T − c
                     v                                             t ≥ T − c

    Args:
        warmup: fraction of the steps, from the start, that train the dense model.
        cooldown: fraction of the steps, at the end, that train at the target density.

    Raises:
        ValueError: a fraction outside [0, 1), no cooldown, or both together leaving no step to prune in.
    """

    warmup: float = 0.1
    cooldown: float = 0.2

    def __post_init__(self) -> None:
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
            ValueError: the cooldown, or what lies between warm-up and cooldown, rounds to no step at all.
        """
        warm, cool = self._boundaries(total_steps)
        if cool < 1:
            raise ValueError(
                f"schedule.cooldown: {self.cooldown} of {total_steps} steps is less than one step, so the target "
                f"density would never be trained; take at least {math.ceil(1 / self.cooldown)} steps or more cooldown"
            )
        if warm + cool >= total_steps:
            raise ValueError(
                f"schedule: warmup {self.warmup} and cooldown {self.cooldown} leave none of {total_steps} steps to "
                "prune in; take more steps or shorten them"
            )

    def density(self, step: int, total_steps: int, target: float) -> float:
        """Density to train with after `step` of `total_steps` updates; exactly `target` at the end."""
        warm, cool = self._boundaries(total_steps)
        if step >= total_steps - cool:
            return target
        if step <= warm:
            return 1.0
        progress = (step - warm) / (total_steps - warm - cool)
        return target + (1.0 - target) * (1.0 - progress) ** 3

    def _boundaries(self, total_steps: int) -> tuple[int, int]:
        return round(self.warmup * total_steps), round(self.cooldown * total_steps)
