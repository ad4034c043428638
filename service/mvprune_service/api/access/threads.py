"""Threads for calls that block."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from mvprune_service.fair import OWNER, FairThreads

_T = TypeVar("_T")
_WORK_SECONDS = 0.001


class Rests:
    """Pauses in long work, in which other threads have the interpreter. Their steps would wait for it otherwise.

    Args:
        free_seconds: CPU time of the thread before the first pause. After that, each millisecond of work is followed by
            a pause of two.
    """

    def __init__(self, free_seconds: float = 0.02) -> None:
        self._next = time.thread_time() + free_seconds

    def rest(self) -> None:
        """Pauses if it is time to. To be called every few hundred microseconds."""
        if time.thread_time() >= self._next:
            time.sleep(2 * _WORK_SECONDS)
            self._next = time.thread_time() + _WORK_SECONDS


class Threads:
    """Threads of one component. While a store or a disk does not answer, only that component's calls wait. A project
    has at most half of them, and projects take turns.

    Args:
        name: of the threads.
        count: the largest number of them.
    """

    def __init__(self, name: str, count: int) -> None:
        self._threads = FairThreads(name, count, max(1, count // 2))

    async def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """The result of a function that blocks."""
        return await asyncio.wrap_future(self._threads.submit(OWNER.get(), partial(function, *args)))

    def close(self) -> None:
        """Waits for the functions that run. Those that wait for a thread are cancelled."""
        self._threads.shutdown(cancel_waiting=True)
