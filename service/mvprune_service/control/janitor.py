"""Deletes what is no longer needed: expired jobs and artifacts, uploads without jobs, old idempotency keys, old
deliveries of webhooks and entries of the audit, checkpoints, orphaned processes, and what the executor keeps of
processes that have ended.

Each step does a bounded part and can be repeated, by several servers at once. If the store or the executor does not
answer, its part waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.collector import Collector
from mvprune_service.control.ownership import Ownership, StoreNotOwned
from mvprune_service.control.processes import Processes
from mvprune_service.db import audit, janitor, uploads, webhooks
from mvprune_service.db.engine.database import Database
from mvprune_service.executors.base import Executor, ExecutorUnavailable
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.checkpoints import delete_checkpoint

log = logging.getLogger(__name__)

_DAY_US = 24 * 3600 * SECOND
_BATCHES = 10  # transactions a step, of each kind
_BATCH = 500  # rows a transaction
_JOBS = 20  # the same of jobs, each of which may have megabytes of logs
_UPLOADS = 20  # the same of uploads, each of which may have thousands of chunks
_CHECKPOINTS = 100  # a step
_PROBLEM = "garbage collection"


class Janitor:
    """Deletes rows, objects and processes that are no longer needed."""

    def __init__(
        self,
        db: Database,
        executor: Executor,
        store: BlobStore,
        problems: Problems,
        *,
        server: str,
        request_days: float,
        checkpoint_days: float,
        upload_days: float,
        quarantine_days: float,
        webhook_days: float = 7.0,
        audit_days: float = 365.0,
        clock: Clock = system_clock,
    ) -> None:
        self._db = db
        self._processes = Processes(db, executor, clock)
        self._store = store
        self._clock = clock
        self._problems = problems
        self._ownership = Ownership(db, store)
        quarantine_us = int(quarantine_days * _DAY_US)
        self._collector = Collector(db, store, self._ownership, server=server, quarantine_us=quarantine_us, clock=clock)
        self._request_us = int(request_days * _DAY_US)
        self._checkpoint_us = int(checkpoint_days * _DAY_US)
        self._upload_us = int(upload_days * _DAY_US)
        self._webhook_us = int(webhook_days * _DAY_US)
        self._audit_us = int(audit_days * _DAY_US)
        self._refusal = ""  # why nothing was deleted from the store with the last step

    async def step(self) -> None:
        """One round."""
        await self._in_batches(janitor.forget_requests, self._clock() - self._request_us, _BATCH)
        await self._in_batches(janitor.delete_expired_jobs, _JOBS)
        await self._in_batches(janitor.delete_expired_artifacts, _BATCH)
        await self._in_batches(uploads.delete_unused, self._clock() - self._upload_us, _UPLOADS)
        await self._in_batches(webhooks.prune, self._clock() - self._webhook_us, _BATCH)
        await self._in_batches(audit.prune, self._clock() - self._audit_us, _BATCH)
        try:
            await self._processes.clean()
        except ExecutorUnavailable as error:
            log.warning("cleaning waits for the executor: %s", error)
        try:
            await self._clean_store()
        except StoreUnavailable as error:
            log.warning("waiting for the store: %s", error)

    async def _in_batches(self, work: Callable[..., int], *args: int) -> None:
        for _ in range(_BATCHES):
            if await self._db.write(work, *args) < args[-1]:
                return

    async def _clean_store(self) -> None:
        """Makes all deletions from the store, and only if the store belongs to this database."""
        await asyncio.to_thread(self._collector.remove_left_flag)
        try:
            await self._ownership.check()
            if await asyncio.to_thread(self._ownership.is_held):
                log.info("%s: nothing is deleted while a backup is being made", self._store.url)
                return
            await self._drop_checkpoints()
            await self._collector.step()
        except StoreNotOwned as error:
            if str(error) != self._refusal:
                log.error("%s: %s", self._store.url, error)
            self._refusal = str(error)
            self._problems.report(_PROBLEM, error)
            self._collector.start_over()
        else:
            self._refusal = ""
            self._problems.clear(_PROBLEM)

    async def _drop_checkpoints(self) -> None:
        dropped = await self._db.write(janitor.drop_checkpoints, self._clock() - self._checkpoint_us, _CHECKPOINTS)
        for checkpoint in dropped:
            if not await asyncio.to_thread(self._ownership.may_delete):
                return  # an object without a row is garbage, which the owner of the store collects
            await asyncio.to_thread(delete_checkpoint, self._store, checkpoint.attempt_uid, checkpoint.step)
