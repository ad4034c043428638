"""Stopping a compression from outside: at the next step, with a checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_requested = threading.Event()


class Stopped(Exception):
    """`request_stop` was called; what was done until then lies in the checkpoint folder, if there is one."""


def request_stop() -> None:
    """Asks the compression that runs in this process to end; safe in a signal handler and in any thread."""
    _requested.set()


def stop_requested() -> bool:
    """Whether `request_stop` was called."""
    return _requested.is_set()


@contextmanager
def stops_alone() -> Iterator[None]:
    """What runs inside may be stopped; a request ends with it, also one that came too late, and stops no other run."""
    try:
        yield
    finally:
        _requested.clear()


def check_stop() -> None:
    """Raises Stopped where a stop was asked for."""
    if stop_requested():
        raise Stopped
