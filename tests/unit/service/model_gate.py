"""Stops coroutines before each write, so that a test decides who goes on next and what becomes of the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from enum import Enum
from typing import Any

from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.outages import DatabaseUnavailable


class Fault(Enum):
    """What becomes of a write."""

    NONE = "NONE"
    REFUSED = "REFUSED"  # the database is away: nothing is written
    LOST = "LOST"  # it is written, and the writer hears that the database is away


class Activity:
    """A coroutine that runs from one write to the next, whenever it is told to."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._parked = asyncio.Event()
        self._go: asyncio.Future[Fault] | None = None
        token = _current.set(self)
        self._task = asyncio.create_task(work)
        _current.reset(token)

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._task.done()

    async def to_write(self) -> None:
        """Lets it run until it is about to write, or has ended. Raises what it raised, save that the database is
        away."""
        parked = asyncio.create_task(self._parked.wait())
        await asyncio.wait({self._task, parked}, return_when=asyncio.FIRST_COMPLETED)
        parked.cancel()
        if self._task.done() and (error := self._task.exception()) and not isinstance(error, DatabaseUnavailable):
            raise error

    async def write(self, fault: Fault = Fault.NONE) -> None:
        """Lets it do the write that it waits for, and run on until the next one."""
        if self.done:
            return
        assert self._go is not None
        self._parked.clear()
        self._go.set_result(fault)
        await self.to_write()

    async def finish(self) -> None:
        """Lets it run to its end."""
        while not self.done:
            await self.write()

    async def kill(self) -> None:
        """Ends it where it is: the write that it waits for never happens."""
        self._task.cancel()
        await asyncio.wait({self._task})

    async def gate(self) -> Fault:
        """Where it waits before a write."""
        self._go = asyncio.get_running_loop().create_future()
        self._parked.set()
        return await self._go


_current: ContextVar[Activity | None] = ContextVar("activity", default=None)


class GatedDatabase(Database):
    """A database in front of whose writes activities wait."""

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See Database.write."""
        activity = _current.get()
        fault = await activity.gate() if activity else Fault.NONE
        if fault is Fault.REFUSED:
            raise DatabaseUnavailable("refused")
        result = await super().write(work, *args, **kwargs)
        if fault is Fault.LOST:
            raise DatabaseUnavailable("lost")
        return result
