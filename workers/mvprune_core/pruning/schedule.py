"""The density over the steps of a run."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Literal

from mvprune.data.run_length import EVENTS, default_cooldown
from mvprune.spec.parameter import MethodFacts
from mvprune.spec.rules import length_problems, schedule_problems, value_problems
from mvprune_core.base.options import given_fields, refuse

Shape = Literal["cubic", "linear", "one_shot", "events"]

_ANY = MethodFacts("")
_FIRST_EVENT = 0.7
_LOWEST_RATE = 0.1  # learning rate before the next event, relative to the rate after the last one


class RunTooShort(ValueError):
    """The run has too few steps for its schedule."""


@dataclass(frozen=True)
class Schedule:
    """Density over the steps of a run.

    With T steps in all, w = round(pruning_start · T), c = round(cooldown · T), final density v and
    p = (t − w) / (T − w − c):

        t ≤ w          1
        w < t < T − c  v + (1 − v) · (1 − p)³   cubic: automated gradual pruning (Zhu and Gupta 2017,
                                                https://arxiv.org/abs/1710.01878, equation 1)
                       v + (1 − v) · (1 − p)    linear
        t ≥ T − c      v

    one_shot prunes once, after w steps: 1 for t < w, v for t ≥ w. Its pruning_start may be 0 (prune before training) or
    1 (prune after training), and it has no cooldown.

    events prunes n times, at equal distances from t = w to t = T − c (Kurtic et al. 2022,
    https://arxiv.org/abs/2203.07259, section 4). The first event prunes the fraction r, or 1 − v if that is less; the
    k-th leaves v + (1 − r − v) · (1 − (k − 1) / (n − 1))³. Each event sets the learning rate back to its peak. It then
    falls linearly, to a tenth of the peak until the next event, and to 0 after the last one. Methods without learned
    scores keep their masks between two events.

    Args:
        shape: cubic, linear, one_shot or events.
        pruning_start: fraction of the steps, at the start, that train the dense model.
        cooldown: fraction of the steps, at the end, that train at the final density; by default 0.4, and 0.5 in runs
            with the preset long.
        events: n, only with the shape events, by default 4. A single event is at T − c.
        first_event: r, only with the shape events: a fraction in (0, 1), by default 0.7.

    Raises:
        ValueError: an unknown shape, an option of another shape, a fraction out of range, or a schedule that never
            reaches the final density.
    """

    shape: Shape = "cubic"
    pruning_start: float = 0.1
    cooldown: float | None = None
    events: int | None = None
    first_event: float | None = None

    def __post_init__(self) -> None:
        refuse(value_problems(self._given))
        refuse(schedule_problems(self._given))

    def check(self, total_steps: int, method: MethodFacts = _ANY) -> None:
        """Raises RunTooShort unless each part of the schedule has the steps that it needs.

        Args:
            total_steps: optimizer steps of the run.
            method: whether weights may be pruned before the first step depends on it.
        """
        refuse(length_problems({"shape": self.shape} | self._given, method, total_steps), RunTooShort)

    @property
    def _given(self) -> dict[str, Any]:
        return given_fields(self)

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
        return default_cooldown() if self.cooldown is None else self.cooldown

    @property
    def _events(self) -> int:
        return self.events or EVENTS

    def _boundaries(self, total_steps: int) -> tuple[int, int]:
        return round(self.pruning_start * total_steps), round(self._cooldown * total_steps)
