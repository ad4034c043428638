"""The events that the supervisor's main thread waits for."""

from __future__ import annotations

import queue
import time
from collections.abc import Collection
from contextlib import suppress
from enum import Enum, auto

# A signal that arrives just before a thread blocks does not wake it: the handler runs, and posts, only after the wait.
SIGNAL_SECONDS = 0.5


class Event(Enum):
    """Something that happened during an attempt. If several have happened, the first in this order takes precedence."""

    LEASE_LOST = auto()
    STOPPED = auto()  # this process received SIGTERM or SIGINT
    CANCELLED = auto()  # the control plane wants the attempt cancelled
    TRAINER_ENDED = auto()
    RESULT = auto()  # the trainer has an artifact, and will end
    PUBLISH_ENDED = auto()
    FETCH_ENDED = auto()


class EventQueue:
    """Threads and signal handlers post events; one thread waits for them. A posted event is never forgotten."""

    def __init__(self) -> None:
        # SimpleQueue.put may interrupt SimpleQueue.get in a signal handler; Event.set and Condition.notify may not.
        self._queue: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._posted: set[Event] = set()

    def post(self, event: Event) -> None:
        """Adds `event`. Safe in threads and in signal handlers."""
        self._queue.put(event)

    def wait(self, events: Collection[Event], timeout: float | None = None) -> Event | None:
        """Waits up to `timeout` seconds for one of `events`. Returns the most urgent one posted so far, else None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._collect()
            for event in Event:
                if event in events and event in self._posted:
                    return event
            remaining = SIGNAL_SECONDS if deadline is None else min(SIGNAL_SECONDS, deadline - time.monotonic())
            if remaining <= 0:
                return None
            with suppress(queue.Empty):
                self._posted.add(self._queue.get(timeout=remaining))

    def _collect(self) -> None:
        while True:
            try:
                self._posted.add(self._queue.get_nowait())
            except queue.Empty:
                return
