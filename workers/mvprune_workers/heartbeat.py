"""The thread that extends the lease during training and uploads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from mvprune.v1 import job_pb2, worker_pb2
from mvprune_workers.channel import LeaseLost, Rejected, Unreachable, WorkerClient
from mvprune_workers.event_queue import Event, EventQueue

_RETRY_SECONDS = 2.0
_SPREAD = (0.8, 1.2)  # so that workers which were started together do not report together
_DEFAULT_GRACE = 10.0


class Heartbeat:
    """`with Heartbeat(…):` sends a heartbeat every `interval` seconds, or as the server asks for; posts LEASE_LOST and
    CANCELLED.

    If the control plane cannot be reached, the heartbeat is repeated and the work continues.
    """

    def __init__(
        self, client: WorkerClient, events: EventQueue, progress: Callable[[], job_pb2.Progress], interval: float
    ) -> None:
        self._client = client
        self._events = events
        self._progress = progress
        self._interval = interval
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self.grace = _DEFAULT_GRACE  # seconds that a CANCEL leaves

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def beat(self, timeout: float | None = None) -> bool:
        """One heartbeat; True if the attempt is to be cancelled. Raises LeaseLost, Unreachable, Rejected."""
        response = self._client.heartbeat(self._progress(), timeout)
        if response.HasField("interval"):
            self._interval = response.interval.ToTimedelta().total_seconds()
        if response.directive != worker_pb2.HeartbeatResponse.CANCEL:
            return False
        if response.HasField("grace"):
            self.grace = response.grace.ToTimedelta().total_seconds()
        return True

    def _run(self) -> None:
        delay = self._interval
        while not self._end.wait(delay):
            try:
                if self.beat():
                    self._events.post(Event.CANCELLED)
                delay = self._interval * random.uniform(*_SPREAD)  # noqa: S311
            except LeaseLost:
                self._events.post(Event.LEASE_LOST)
                return
            except (Unreachable, Rejected):
                delay = min(self._interval, _RETRY_SECONDS)
