"""The density over the steps of a run."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from mvprune.data.run_length import COOLDOWN, EVENTS
from mvprune_core.options import check_choice, check_fraction

Shape = Literal["cubic", "linear", "one_shot", "events"]

_FIRST_EVENT = 0.7
_LOWEST_RATE = 0.1  # learning rate before the next event, relative to the rate after the last one


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

    events prunes n times, at equal distances from t = w to t = T − c (Kurtic et al. 2022,
    https://arxiv.org/abs/2203.07259, section 4). The first event prunes the fraction r, or 1 − v if that is less; the
    k-th leaves v + (1 − r − v) · (1 − (k − 1) / (n − 1))³. Each event sets the learning rate back to its peak. It then
    falls linearly, to a tenth of the peak until the next event, and to 0 after the last one. Methods without learned
    scores keep their masks between two events.

    Args:
        shape: cubic, linear, one_shot or events.
        warmup: fraction of the steps, at the start, that train the dense model.
        cooldown: fraction of the steps, at the end, that train at the final density; by default 0.4, and 0.5 in runs
            with the preset long.
        events: n, only with the shape events, by default 4. A single event is at T − c.
        first_event: r, only with the shape events: a fraction in (0, 1), by default 0.7.

    Raises:
        ValueError: an unknown shape, an option of another shape, a fraction out of range, or a schedule that never
            reaches the final density.
    """

    shape: Shape = "cubic"
    warmup: float = 0.1
    cooldown: float | None = None
    events: int | None = None
    first_event: float | None = None

    def __post_init__(self) -> None:
        check_choice("schedule.shape", self.shape, Shape)
        self._check_events()
        if self.shape == "one_shot":
            check_fraction("schedule.warmup", self.warmup, "[0, 1]")
            return
        check_fraction("schedule.warmup", self.warmup, "[0, 1)")
        check_fraction("schedule.cooldown", self._cooldown, "(0, 1)", "without it the final density is never trained")
        if self.warmup + self._cooldown >= 1:
            raise ValueError(
                "schedule.warmup + schedule.cooldown must be below 1, which leaves steps to prune in, got "
                f"{self.warmup} + {self._cooldown}"
            )

    def _check_events(self) -> None:
        if self.events is not None and (type(self.events) is not int or self.events < 1):
            raise ValueError(f"schedule.events must be a whole number of at least 1, got {self.events!r}")
        if self.first_event is not None:
            check_fraction("schedule.first_event", self.first_event, "(0, 1)")
        for name in ("events", "first_event"):
            if self.shape != "events" and getattr(self, name) is not None:
                raise ValueError(f"schedule.shape must be events with schedule.{name}, got {self.shape}")

    def check(self, total_steps: int) -> None:
        """Raises RunTooShort if the cooldown, or the time between warmup and cooldown, has too few steps."""
        if self.shape == "one_shot":
            return
        warm, cool = self._boundaries(total_steps)
        if cool < 1:
            raise RunTooShort(
                f"schedule.cooldown must be at least one step, got {self._cooldown} of {total_steps} steps; take at "
                f"least {math.ceil(1 / self._cooldown)} steps or a longer cooldown"
            )
        if warm + cool >= total_steps:
            raise RunTooShort(
                "schedule.warmup + schedule.cooldown must leave at least one step to prune in, got "
                f"{self.warmup} + {self._cooldown} of {total_steps} steps; take more steps or shorten them"
            )

        if self.shape == "events" and total_steps - warm - cool < self._events - 1:
            raise RunTooShort(
                f"schedule.events must be at most {total_steps - warm - cool + 1}, one a step between warmup and "
                f"cooldown, got {self._events}; take more steps or fewer events"
            )

    def check_starts_dense(self, total_steps: int, method: str) -> None:
        """Raises RunTooShort if weights are pruned before the first step, for a method that needs gradients before."""
        if self.density_at(0, total_steps, 0.0) < 1:
            raise RunTooShort(
                f"schedule.warmup must be at least one step with the method {method}, got {self.warmup} of "
                f"{total_steps} steps; take more steps or a longer warmup"
            )

    def density_at(self, step: int, total_steps: int, density: float) -> float:
        """The density after `step` of `total_steps` updates, in a run that ends at exactly `density`."""
        warm, _ = self._boundaries(total_steps)
        if step >= self.pruning_end(total_steps):
            return density
        if self.shape == "events":
            return self._density_of_event(bisect_right(self._event_steps(total_steps), step), density)
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

    def lr_decay(self, step: int, total_steps: int) -> float | None:
        """Factor of the learning rate in update `step` (from 0) since the last event, at most 1; None: the schedule
        does not change the learning rate."""
        if self.shape != "events":
            return None
        events = self._event_steps(total_steps)
        passed = bisect_right(events, step)
        start, end = (0, *events)[passed], (*events, total_steps)[passed]
        lowest = _LOWEST_RATE if passed < len(events) else 0.0
        return 1.0 - (1.0 - lowest) * (step - start) / (end - start)

    def _event_steps(self, total_steps: int) -> list[int]:
        """The number of updates before each event."""
        first, last = self._boundaries(total_steps)[0], self.pruning_end(total_steps)
        between = self._events - 1
        return [*(first + round(index * (last - first) / between) for index in range(between)), last]

    def _density_of_event(self, number: int, density: float) -> float:
        """The density after `number` events."""
        if number == 0:
            return 1.0
        first = max(density, 1.0 - (self.first_event or _FIRST_EVENT))
        return density + (first - density) * (1.0 - (number - 1) / (self._events - 1)) ** 3

    @property
    def _cooldown(self) -> float:
        return COOLDOWN if self.cooldown is None else self.cooldown

    @property
    def _events(self) -> int:
        return self.events or EVENTS

    def _boundaries(self, total_steps: int) -> tuple[int, int]:
        return round(self.warmup * total_steps), round(self._cooldown * total_steps)
