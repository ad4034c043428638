"""Stopping a compression from outside, at the next step and with a checkpoint."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mvprune_core.base.group import ALONE, Group

_requested = threading.Event()


class Stopped(Exception):
    """`request_stop` was called. The work so far is in the checkpoint folder, if there is one."""


def request_stop() -> None:
    """Asks the compression that runs in this process to stop. Safe in signal handlers and in any thread."""
    _requested.set()


def stop_requested() -> bool:
    """Whether `request_stop` was called."""
    return _requested.is_set()


@contextmanager
def stop_scope() -> Iterator[None]:
    """A context that a stop request ends with: a request that comes too late does not stop the next run."""
    try:
        yield
    finally:
        _requested.clear()


def check_stop(group: Group = ALONE) -> None:
    """Raises Stopped if `request_stop` was called; in a group, on all ranks if it was called on rank 0."""
    if any(group.of_first(stop_requested())):
        raise Stopped
