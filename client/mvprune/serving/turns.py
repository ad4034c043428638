"""Threads that compute with one model in turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """One thread computes at a time; those that wait come in the order in which they asked."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._given_out = self._current = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A context in which this thread computes."""
        self.take()
        try:
            yield
        finally:
            self.leave()

    @property
    def is_wanted(self) -> bool:
        """Whether another thread waits."""
        with self._changed:
            return self._given_out - self._current > 1

    def take(self) -> None:
        """Waits until it is this thread's turn."""
        with self._changed:
            number = self._given_out
            self._given_out += 1
            self._changed.wait_for(lambda: self._current == number)

    def leave(self) -> None:
        """Ends the turn."""
        with self._changed:
            self._current += 1
            self._changed.notify_all()
