"""Cleans the executor: stops orphaned processes, and deletes what it keeps of processes whose attempt is closed.

Ray keeps every job for ever, and sends all of them with each list. What a worker could not send of its log is read
from the executor before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import attempt_logs, janitor
from mvprune_service.db.engine.database import Database
from mvprune_service.domain.outputs import unsent
from mvprune_service.executors.base import OUTPUT_BYTES, Executor, Refs

log = logging.getLogger(__name__)

_REF = "mvprune-"  # executor_ref = mvprune-{attempt uid}
_FORGOTTEN = 2000  # a step
_ABANDONED_US = 24 * 3600 * SECOND  # what is older is nobody's: its job was deleted, or its server is gone


class Processes:
    """The processes of the executor that no live attempt needs."""

    def __init__(self, db: Database, executor: Executor, clock: Clock = system_clock) -> None:
        self._db = db
        self._executor = executor
        self._clock = clock
        self._orphans: set[str] = set()  # refs seen with the last step

    async def clean(self) -> None:
        """One round. What fails is tried again with the next one. Raises ExecutorUnavailable."""
        refs = await asyncio.to_thread(self._executor.list, _REF)
        await self._stop_orphans(refs.live)
        await self._forget(refs)

    async def _stop_orphans(self, live: Iterable[str]) -> None:
        """Stops processes whose attempt has ended, when they are seen for the second time: a process that has just
        reported is about to end. Processes of attempts that are not in this database are another server's."""
        orphans = await self._closed(live)
        for ref in orphans & self._orphans:
            log.warning("stopping %s: its attempt has ended", ref)
            await asyncio.to_thread(self._executor.stop, ref)
        self._orphans = orphans

    async def _forget(self, refs: Refs) -> None:
        oldest_first = sorted(refs.ended, key=lambda ref: refs.ended[ref])[:_FORGOTTEN]
        closed = await self._closed(oldest_first)
        lost = await self._db.read(janitor.lost_attempts, [ref.removeprefix(_REF) for ref in closed])
        abandoned_us = self._clock() - _ABANDONED_US
        for ref in oldest_first:
            if ref in closed:
                if ref.removeprefix(_REF) in lost:
                    await keep_output(self._db, self._executor, ref)
            elif refs.ended[ref] > abandoned_us or await self._is_live(ref):
                continue
            await asyncio.to_thread(self._executor.forget, ref)

    async def _closed(self, refs: Iterable[str]) -> set[str]:
        """Those whose attempt has ended."""
        return {_REF + uid for uid in await self._db.read(janitor.ended_attempts, [r.removeprefix(_REF) for r in refs])}

    async def _is_live(self, ref: str) -> bool:
        return bool(await self._db.read(janitor.live_attempts, [ref.removeprefix(_REF)]))


async def keep_output(db: Database, executor: Executor, ref: str) -> None:
    """Appends what the worker of an attempt that has ended did not send to the attempt's log. Raises
    ExecutorUnavailable."""
    output = await asyncio.to_thread(executor.output, ref)
    uid = ref.removeprefix(_REF)
    await db.write(attempt_logs.append_output, uid, OUTPUT_BYTES, lambda tail: unsent(tail, output))
