"""What the supervisor's main thread waits for."""

from __future__ import annotations

import queue
import time
from collections.abc import Collection
from contextlib import suppress
from enum import Enum, auto

# A signal that comes just before a thread blocks does not wake it: its handler, and what that posts, waits with it.
SIGNAL_SECONDS = 0.5


class Fact(Enum):
    """Something that happened. Facts stay true; of several, the first in this order decides."""

    LEASE_LOST = auto()
    STOPPED = auto()  # this process was told to stop
    CANCELLED = auto()  # the control plane wants the attempt cancelled
    TRAINER_ENDED = auto()
    PUBLISH_ENDED = auto()
    FETCH_ENDED = auto()


class Inbox:
    """Facts posted by threads and signal handlers, waited for by one thread."""

    def __init__(self) -> None:
        # SimpleQueue.put may interrupt SimpleQueue.get in a signal handler; Event.set and Condition.notify may not.
        self._queue: queue.SimpleQueue[Fact] = queue.SimpleQueue()
        self._known: set[Fact] = set()

    def post(self, fact: Fact) -> None:
        """Makes `fact` known. Safe in threads and in signal handlers."""
        self._queue.put(fact)

    def wait(self, facts: Collection[Fact], timeout: float | None = None) -> Fact | None:
        """The most urgent known fact of `facts`, waiting up to `timeout` seconds for one; None if there is none."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._collect()
            for fact in Fact:
                if fact in facts and fact in self._known:
                    return fact
            remaining = SIGNAL_SECONDS if deadline is None else min(SIGNAL_SECONDS, deadline - time.monotonic())
            if remaining <= 0:
                return None
            with suppress(queue.Empty):
                self._known.add(self._queue.get(timeout=remaining))

    def _collect(self) -> None:
        while True:
            try:
                self._known.add(self._queue.get_nowait())
            except queue.Empty:
                return
