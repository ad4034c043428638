"""How long the rest of a run takes, by what it has measured itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from mvprune.data.phases import Phase

_PASSES_OF_A_STEP = 3
"""The cost of a training step in forward passes over its examples: a backward pass computes twice as much as a forward
pass. Only for kinds of phases that were not measured yet."""


class Timetable:
    """The phases of a run, and the time that each unit of them takes.

    A step counts with the rate of its own phase in this attempt; before that, with the rate of the other training. So
    a phase that resumes from a checkpoint counts only the steps made since then. Evaluations between steps are measured
    apart from the steps.

    Args:
        clock: seconds; only differences count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phases: Sequence[Phase] = ()
        self._at = -1  # the current phase
        self._began = self._last = clock()  # the current phase began; its last step ended
        self._first = self._done = 0  # units of the current phase: before this attempt, and in all
        self._inside = 0.0  # seconds of evaluations in the current phase
        self._evaluations = 0
        self._a_step: dict[str, float] = {}  # seconds, by phase
        self._an_example: float | None = None  # seconds to read it without training

    def plan(self, phases: Sequence[Phase]) -> None:
        """The phases to come."""
        self._phases, self._at = phases, -1

    def begin(self, name: str) -> None:
        """A phase begins. Phases before it are over, or were not needed."""
        current = self._phases[self._at] if self._at >= 0 else None
        if current is not None and current.name == name and current.is_training:
            return  # it goes on after another one, such as sampling
        found = [at for at in range(self._at + 1, len(self._phases)) if self._phases[at].name == name]
        if not found:
            return  # it is not planned for itself
        self._at = found[0]
        self._began = self._last = self._clock()
        self._first = self._done = self._evaluations = 0
        self._inside = 0.0

    def resume(self, step: int) -> None:
        """The current phase goes on after so many steps."""
        self._first = self._done = step
        self._evaluations = self._evaluations_until(step)
        self._began = self._last = self._clock()

    def step(self, done: int) -> None:
        """So many steps of the current phase are done."""
        self._done, self._last = done, self._clock()
        if self._at >= 0 and done > self._first:
            spent = self._last - self._began - self._inside
            self._a_step[self._phases[self._at].name] = spent / (done - self._first)

    def evaluated(self, phase: str) -> None:
        """The model was evaluated, possibly between two steps."""
        if self._at < 0 or self._phases[self._at].name != phase:
            return
        now, examples = self._clock(), self._phases[-1].examples
        self._inside += now - self._last
        if examples:
            self._an_example = (now - self._last) / examples
        self._evaluations += 1
        self._last = now

    def read(self, phase: str, done: int) -> None:
        """The model has read so many examples in the current phase."""
        if self._at >= 0 and self._phases[self._at].name == phase and done:
            self._done = done
            self._an_example = (self._clock() - self._began) / done

    def left(self) -> float | None:
        """Seconds to the end of the last phase; None before anything was measured."""
        rest = self._phases[self._at :] if self._at >= 0 else ()
        if not rest:
            return None
        total, done, evaluations = 0.0, self._done, self._evaluations
        for phase in rest:
            unit = self._seconds_of(phase)
            if unit is None:
                return None
            total += max(0, (phase.steps if phase.is_training else phase.examples) - done) * unit
            between = max(0, phase.evaluations - evaluations) * self._phases[-1].examples
            total += between * (self._reading or 0.0)
            done = evaluations = 0
        return total

    def _seconds_of(self, phase: Phase) -> float | None:
        """A step, or an example that is read."""
        if not phase.is_training:
            return self._reading
        known = self._a_step.get(phase.name)
        if known is None and self._a_step:
            return next(iter(self._a_step.values()))
        if known is None and self._an_example is not None and phase.steps:
            return _PASSES_OF_A_STEP * self._an_example * phase.examples / phase.steps
        return known

    @property
    def _reading(self) -> float | None:
        """Seconds to read an example."""
        if self._an_example is not None:
            return self._an_example
        for phase in self._phases:
            known = self._a_step.get(phase.name)
            if known is not None and phase.examples:
                return known * phase.steps / phase.examples / _PASSES_OF_A_STEP
        return None

    def _evaluations_until(self, step: int) -> int:
        phase = self._phases[self._at] if self._at >= 0 else Phase("")
        return phase.evaluations * step // phase.steps if phase.steps else 0
