"""How many calls of each project are answered at a time. Further calls wait for their project's turn."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from mvprune_service.api.access.errors import ApiError
from mvprune_service.fair import FairQueue

_WAITING = 200  # calls of an owner
_WAIT_SECONDS = 30.0
_RETRY_SECONDS = 1.0


class Shares:
    """Places for calls. An owner that has as many as it may have waits, and so does everybody while all are taken.

    Args:
        in_all: places.
        of_each: places of an owner at most.
        unit: what is counted, for errors.
    """

    def __init__(self, in_all: int, of_each: int, unit: str = "calls") -> None:
        self._in_all = in_all
        self._of_each = of_each
        self._unit = unit
        self._held: Counter[str] = Counter()
        self._total = 0
        self._waiting: Counter[str] = Counter()
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue()

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """A place for a call. Raises ApiError (RESOURCE_EXHAUSTED) if too many of the owner's wait, or one has waited
        too long."""
        if self._total < self._in_all and self._held[owner] < self._of_each:
            self._give(owner)
        else:
            await self._wait(owner)
        started = time.perf_counter()
        try:
            yield
        finally:
            self._return(owner, time.perf_counter() - started)

    async def _wait(self, owner: str) -> None:
        if self._waiting[owner] >= _WAITING:
            raise self._too_many()
        turn = asyncio.get_running_loop().create_future()
        self._queue.put(owner, turn)
        self._waiting[owner] += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # its turn came at the same moment
                self._return(owner, 0.0)
            if isinstance(error, TimeoutError):
                raise self._too_many() from None
            raise
        finally:
            _less(self._waiting, owner)

    def _give(self, owner: str) -> None:
        self._held[owner] += 1
        self._total += 1

    def _return(self, owner: str, seconds: float) -> None:
        _less(self._held, owner)
        self._total -= 1
        self._queue.charge(owner, seconds)
        while self._total < self._in_all and (next_one := self._queue.take(self._may_have)):
            owner, turn = next_one
            if not turn.done():  # else its call has ended
                self._give(owner)
                turn.set_result(None)

    def _may_have(self, owner: str) -> bool:
        return self._held[owner] < self._of_each

    def _too_many(self) -> ApiError:
        message = (
            f"{self._unit} of a project at a time must be at most {self._of_each} with {_WAITING} that wait up to "
            f"{_WAIT_SECONDS:g} s, got more; make fewer at a time"
        )
        return ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", message, retry_seconds=_RETRY_SECONDS)


def _less(counts: Counter[str], owner: str) -> None:
    counts[owner] -= 1
    if not counts[owner]:
        del counts[owner]
