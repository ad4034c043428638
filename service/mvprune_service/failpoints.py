"""Named places where a process can be made to fail, for the tests in tests/chaos.

MVPRUNE_FAILPOINTS="create.after_commit=kill:1,claim.before_commit=sleep:2.5", read once at the start, turns them on:

    kill:N     SIGKILL to this process when the place is reached for the N-th time
    error      DatabaseUnavailable each time: after a commit that is a write that happened and then reports a time-out
    error:N    the same, the first N times
    sleep:S    waits S seconds each time

Without the variable a failpoint is one look into an empty dictionary.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from mvprune_service.db.engine.outages import DatabaseUnavailable

ENVIRONMENT = "MVPRUNE_FAILPOINTS"


def failpoint(name: str) -> None:
    """Fails here, if this place was told to. Raises DatabaseUnavailable."""
    if act := _ACTIONS.get(name):
        act()


def _parse(text: str) -> dict[str, Callable[[], None]]:
    actions = {}
    for entry in text.split(",") if text else ():
        name, _, action = entry.partition("=")
        kind, _, value = action.partition(":")
        if kind not in _KINDS:
            raise ValueError(f"{ENVIRONMENT} must be NAME=kill:N, NAME=error or NAME=sleep:SECONDS, got {entry!r}")
        actions[name] = _KINDS[kind](value)
    return actions


def _kill(hits: str) -> Callable[[], None]:
    counter = _Counter(int(hits or 1))

    def act() -> None:
        if counter.down() == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return act


def _error(times: str) -> Callable[[], None]:
    counter = _Counter(int(times)) if times else None

    def act() -> None:
        if counter is None or counter.down() >= 0:
            raise DatabaseUnavailable("a failpoint")

    return act


def _sleep(seconds: str) -> Callable[[], None]:
    duration = float(seconds)
    return lambda: time.sleep(duration)


class _Counter:
    def __init__(self, value: int) -> None:
        self._value = value
        self._lock = threading.Lock()

    def down(self) -> int:
        with self._lock:
            self._value -= 1
            return self._value


_KINDS: dict[str, Callable[[str], Callable[[], None]]] = {"kill": _kill, "error": _error, "sleep": _sleep}
_ACTIONS = _parse(os.environ.get(ENVIRONMENT, ""))
