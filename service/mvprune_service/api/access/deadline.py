"""A time limit of a block, at half the cost of asyncio.timeout, which awaits twice: each call of a server has one."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadline:
    """Raises TimeoutError in a block that awaits for longer. A task that is cancelled from elsewhere stays cancelled.

    Args:
        seconds: from the beginning of the block.

    Raises:
        RuntimeError: there is no task to cancel.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._has_passed = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline must be in a task")
        self._task, self._cancelling = task, task.cancelling()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._pass)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._timer.cancel()
        if self._has_passed and self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _pass(self) -> None:
        self._has_passed = True
        self._task.cancel()
