"""What a job tells while it runs, as events and lines of its log."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence

from mvprune.common.units import percent
from mvprune.data.phases import Phase
from mvprune_core import Callback, Progress
from mvprune_workers.events import CheckpointEvent, MetricEvent, ProgressEvent, TrainerEvent
from mvprune_workers.position import Position
from mvprune_workers.timetable import Timetable

log = logging.getLogger(__name__)

_PROGRESS_SECONDS = 0.25
_METRIC_POINTS = 500  # in a phase, at most
_LOG_LINES = 40  # in a phase, at most


class Reports(Callback):
    """Turns what the core tells into events and log lines, few enough for long runs, and into a position."""

    def __init__(
        self, emit: Callable[[TrainerEvent], None], position: Position, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._emit = emit
        self._position = position
        self._clock = clock
        self._next_progress = -math.inf
        self._density = 1.0
        self._timetable = Timetable(clock)

    def on_plan(self, phases: Sequence[Phase]) -> None:
        """See Callback."""
        self._timetable.plan(phases)

    def on_phase(self, name: str) -> None:
        """See Callback."""
        log.info("phase: %s", name)
        self._next_progress = -math.inf
        self._timetable.begin(name)
        self._position.set(name, 0)
        self._emit(ProgressEvent(name, density=self._density, eta_seconds=self._timetable.left()))

    def on_step(self, progress: Progress) -> None:
        """See Callback."""
        step, total = progress.step, progress.total_steps
        self._density = progress.density
        self._timetable.step(step)
        self._show(progress.phase, step, total, _finite(progress.loss))
        if _is_due(step, total, _METRIC_POINTS):
            self._record(f"{progress.phase}/loss", step, progress.loss)
            self._record(f"{progress.phase}/density", step, progress.density)
        if _is_due(step, total, _LOG_LINES):
            density = percent(self._density)
            log.info("%s: step %d of %d, loss %.4f, density %s", progress.phase, step, total, progress.loss, density)

    def on_examples(self, phase: str, done: int, total: int) -> None:
        """See Callback."""
        self._timetable.read(phase, done)
        self._show(phase, done, total, None)

    def on_resume(self, phase: str, step: int) -> None:
        """See Callback."""
        log.info("%s: resuming after step %d", phase, step)
        self._timetable.resume(step)

    def on_checkpoint(self, steps: int) -> None:
        """See Callback."""
        self._emit(CheckpointEvent(steps))

    def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
        """See Callback."""
        log.info("%s model: %s", phase, ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
        self._timetable.evaluated(phase)
        for name, value in metrics.items():
            self._record(f"{phase}/{name}", step, value)

    def on_note(self, text: str) -> None:
        """See Callback."""
        log.warning("note: %s", text)

    def _show(self, phase: str, step: int, total: int, loss: float | None) -> None:
        self._position.set(phase, step)
        now = self._clock()
        if now >= self._next_progress or step == total:
            self._next_progress = now + _PROGRESS_SECONDS
            eta = self._timetable.left()
            self._emit(ProgressEvent(phase, step, total, self._density, loss, eta))

    def _record(self, metric: str, step: int, value: float) -> None:
        if math.isfinite(value):
            self._emit(MetricEvent(metric, step, value, time.time()))


def _is_due(step: int, total: int, times: int) -> bool:
    """Whether to report at `step` so as to report about `times` times in `total` steps, the last step included."""
    return step == total or step % math.ceil(total / times) == 0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
