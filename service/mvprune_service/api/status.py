"""The status of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from google.protobuf.duration_pb2 import Duration

import mvprune
from mvprune.common.units import counted
from mvprune.v1 import admin_pb2
from mvprune_service.api.messages import mapping
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import overview
from mvprune_service.db.engine.database import Database
from mvprune_service.db.overview import Overview
from mvprune_service.db.quarantine import Quarantined, quarantined
from mvprune_service.domain.machine import JobState
from mvprune_service.executors.base import Capacity, Executor
from mvprune_service.observability.logs import redact
from mvprune_service.observability.probes import Probe, Problems
from mvprune_service.stores.base import BlobStore, ObjectNotFound

_QUARANTINE_SECONDS = 30.0  # it is counted at most this often: there may be many rows
_RECENT_US = 3600 * SECOND
_NOTHING = "probe"  # no store has this key


class WorkersWithoutStore(Exception):
    """Workers could not use the store, which this server may reach all the same."""


class StatusReporter:
    """Fills in ServerStatus. `problems` has the loops' too; `streams` counts open ones.

    Attributes:
        capacity: asks the executor.
        quarantine: asks the database.
        reach_store: asks the store.
    """

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        executor: Executor,
        problems: Problems,
        streams: Callable[[], int],
        clock: Clock = system_clock,
    ) -> None:
        self._store = store
        self._executor_text = redact(executor.description)
        self._database_kind = db.engine.dialect.name
        self._problems = problems
        self._streams = streams
        self._clock = clock
        self._started = clock()
        self._overview = Probe("database", lambda: db.read(overview.overview, list(JobState)), problems)
        self.quarantine = Probe("quarantine", lambda: db.read(quarantined), problems, fresh=_QUARANTINE_SECONDS)
        self._revision = Probe("schema", lambda: db.read(overview.schema_revision), problems)
        self.capacity = Probe("executor", lambda: asyncio.to_thread(executor.capacity), problems)
        self._workers_store = Probe("store of workers", lambda: self._used_by_workers(db), problems)
        self.reach_store = Probe("store", lambda: asyncio.to_thread(_reach, store), problems)

    async def status(self) -> admin_pb2.ServerStatus:
        """The status now. Never raises: what cannot be reached is among the problems, and its fields are unset."""
        seen, revision, capacity, garbage, *_ = await asyncio.gather(
            self._overview.get(),
            self._revision.get(),
            self.capacity.get(),
            self.quarantine.get(),
            self.reach_store.get(),
            self._workers_store.get(),
        )
        now = self._clock()
        status = admin_pb2.ServerStatus(
            version=mvprune.__version__,
            start_time=mapping.timestamp(self._started),
            time=mapping.timestamp(now),
            database=self._database_kind,
            schema_revision=revision or "",
            store=self._store.url,
            executor=self._executor_text,
            watchers=self._streams(),
            problems=self._problems.texts(),
        )
        if capacity is not None:
            status.capacity.CopyFrom(_capacity(capacity, seen))
        if garbage is not None:
            status.quarantine.CopyFrom(_quarantine(garbage))
        if seen is not None:
            status.jobs.update(seen.jobs)
            status.live_attempts = seen.live_attempts
            for since, age in (
                (seen.oldest_queued_us, status.oldest_queued_age),
                (seen.oldest_heartbeat_us, status.longest_heartbeat_age),
            ):
                if since is not None:
                    _set(age, max(0, now - since))
        return status

    async def _used_by_workers(self, db: Database) -> bool:
        """Returns True, or raises WorkersWithoutStore."""
        failed = await db.read(overview.store_failures, self._clock() - _RECENT_US)
        if failed.attempts:
            raise WorkersWithoutStore(
                f"{counted(failed.attempts, 'attempt')} of the last hour ended; the last one: {failed.last}"
            )
        return True


def _reach(store: BlobStore) -> bool:
    """Returns True, or raises StoreUnavailable. By `size` a bucket that is not there looks like an empty one."""
    with suppress(ObjectNotFound):
        store.get(_NOTHING)
    return True


def _capacity(capacity: Capacity, seen: Overview | None) -> admin_pb2.ServerStatus.Capacity:
    message = admin_pb2.ServerStatus.Capacity(
        cpus=capacity.cpus, gpus=capacity.gpus, memory_bytes=capacity.memory_bytes
    )
    if seen is not None:
        message.reserved_cpus = seen.cpus
        message.reserved_gpus = seen.gpus
        message.reserved_memory_bytes = seen.memory_bytes
    return message


def _quarantine(garbage: Quarantined) -> admin_pb2.ServerStatus.Quarantine:
    since = None if garbage.since_us is None else mapping.timestamp(garbage.since_us)
    return admin_pb2.ServerStatus.Quarantine(
        objects=garbage.objects, size_bytes=garbage.size_bytes, artifacts=garbage.artifacts, since=since
    )


def _set(duration: Duration, microseconds: int) -> None:
    duration.FromMicroseconds(microseconds)
    duration.SetInParent()  # also for an age of 0
