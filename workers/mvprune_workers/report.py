"""The trainer's reports so far."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from mvprune.v1 import job_pb2
from mvprune_workers.events import CheckpointEvent, FailureEvent, MetricEvent, ProgressEvent, ResultEvent, TrainerEvent

_MESSAGE_CHARACTERS = 1000


class TrainerReport:
    """Filled by the thread that reads events; read by all others."""

    def __init__(self) -> None:
        self.progress = job_pb2.Progress(phase="loading", density=1.0)  # replaced, never changed
        self.checkpoints: queue.SimpleQueue[int | None] = queue.SimpleQueue()  # see CheckpointUploader
        self.result: Path | None = None
        self.failure: job_pb2.Failure | None = None
        self._points: list[job_pb2.MetricPoint] = []
        self._lock = threading.Lock()

    def take(self, event: TrainerEvent) -> None:
        """Takes one event."""
        match event:
            case ProgressEvent():
                self.progress = _progress(event)
            case MetricEvent():
                with self._lock:
                    self._points.append(_point(event))
            case CheckpointEvent():
                self.checkpoints.put(event.step)
            case ResultEvent():
                self.result = Path(event.directory)
            case FailureEvent() if self.failure is None:  # others of several ranks follow from the first
                self.failure = _failure(event)

    def points(self, limit: int) -> list[job_pb2.MetricPoint]:
        """The oldest metric points that were not dropped yet."""
        with self._lock:
            return self._points[:limit]

    def drop_points(self, count: int) -> None:
        """Forgets the oldest metric points: they were delivered."""
        with self._lock:
            del self._points[:count]


def _progress(event: ProgressEvent) -> job_pb2.Progress:
    progress = job_pb2.Progress(
        phase=event.phase, step=event.step, total_steps=event.total_steps, density=event.density, loss=event.loss
    )
    if event.eta_seconds is not None:
        progress.eta.CopyFrom(Duration(seconds=round(event.eta_seconds)))
    return progress


def _point(event: MetricEvent) -> job_pb2.MetricPoint:
    time = Timestamp()
    time.FromMicroseconds(round(event.time * 1e6))
    return job_pb2.MetricPoint(metric=event.metric, step=event.step, value=event.value, time=time)


def _failure(event: FailureEvent) -> job_pb2.Failure:
    known = event.reason in job_pb2.Failure.Reason.keys()  # noqa: SIM118 - an enum wrapper, not a dict
    # A file's name in it may hold what is no character.
    message = event.message[:_MESSAGE_CHARACTERS].encode(errors="replace").decode()
    return job_pb2.Failure(reason=event.reason if known else job_pb2.Failure.TRAINER_CRASHED, message=message)
