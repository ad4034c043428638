"""Threads for calls that block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")


class Threads:
    """Threads of one component. While a store or a disk does not answer, only that component's calls wait.

    Args:
        name: of the threads.
        count: the largest number of them.
    """

    def __init__(self, name: str, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, function: Callable[..., _T], *args: Any) -> _T:
        """The result of a function that blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def close(self) -> None:
        """Waits for the functions that run. Those that wait for a thread are cancelled."""
        self._pool.shutdown(cancel_futures=True)
