"""Collects heartbeats, so that those of many workers share a transaction."""

from __future__ import annotations

import asyncio

from mvprune_service.control.pace import Pace
from mvprune_service.db.engine.database import Database
from mvprune_service.db.heartbeats import Beat, Renewed, heartbeats
from mvprune_service.domain.leases import StaleLease

_BATCH = 500  # heartbeats of a transaction
_PAUSE_SECONDS = 0.25  # between transactions while there are many workers


class Beats:
    """Writes one batch at a time. What arrives meanwhile is the next one, so that a single heartbeat does not wait."""

    def __init__(self, db: Database, pace: Pace) -> None:
        self._db = db
        self._pace = pace
        self._waiting: list[tuple[Beat, asyncio.Future[Renewed]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def write(self, beat: Beat) -> Renewed:
        """Returns once the heartbeat is in the database. Raises StaleLease, DatabaseUnavailable."""
        answer: asyncio.Future[Renewed] = asyncio.get_running_loop().create_future()
        self._waiting.append((beat, answer))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="heartbeats")
        return await answer

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH], self._waiting[_BATCH:]
                await self._write(batch)
                if self._pace.is_slowed and len(self._waiting) < _BATCH:
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._writing = None

    async def _write(self, batch: list[tuple[Beat, asyncio.Future[Renewed]]]) -> None:
        try:
            found = await self._db.write(heartbeats, [beat for beat, _ in batch], lease_us=self._pace.lease_us)
        except BaseException as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, answer), one in zip(batch, found, strict=True):
            if answer.done():  # the caller has gone
                continue
            if isinstance(one, StaleLease):
                answer.set_exception(one)
            else:
                answer.set_result(one)
