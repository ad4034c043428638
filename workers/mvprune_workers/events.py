"""The events that the trainer sends to the supervisor: JSON lines on a separate pipe."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ProgressEvent:
    """The progress of the work; `step` counts within `phase`."""

    phase: str
    step: int = 0
    total_steps: int = 0
    density: float = 1.0
    loss: float | None = None
    eta_seconds: float | None = None


@dataclass(frozen=True)
class MetricEvent:
    """One value to record; `time` in seconds since the epoch."""

    metric: str
    step: int
    value: float
    time: float


@dataclass(frozen=True)
class CheckpointEvent:
    """A checkpoint in the checkpoint folder is complete; `step` counts all phases together."""

    step: int


@dataclass(frozen=True)
class ResultEvent:
    """The work is done: `directory` contains a complete artifact."""

    directory: str


@dataclass(frozen=True)
class FailureEvent:
    """The work failed; `reason` is a name of mvprune.v1.Failure.Reason, `message` one sentence for people."""

    reason: str
    message: str


@dataclass(frozen=True)
class SignEvent:
    """A rank is alive; `leaves`: it will send no further sign, because it has done its part."""

    rank: int
    leaves: bool = False


TrainerEvent = ProgressEvent | MetricEvent | CheckpointEvent | ResultEvent | FailureEvent | SignEvent
_KINDS: dict[str, type[TrainerEvent]] = {
    "progress": ProgressEvent,
    "metric": MetricEvent,
    "checkpoint": CheckpointEvent,
    "result": ResultEvent,
    "failure": FailureEvent,
    "sign": SignEvent,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class EventWriter:
    """The trainer's end of the pipe. Safe in threads."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def emit(self, event: TrainerEvent) -> None:
        """Writes one complete event."""
        line = json.dumps({"event": _NAMES[type(event)], **asdict(event)}).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._fd, line) :]


def parse(line: bytes) -> TrainerEvent | None:
    """The event on `line`; None if the line is invalid, such as the incomplete last line of a killed trainer."""
    try:
        fields = json.loads(line)
        return _KINDS[fields.pop("event")](**fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
