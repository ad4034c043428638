"""The feed of a job: each change is read once, however many clients watch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mvprune.v1 import job_pb2
from mvprune_service.api.messages import mapping
from mvprune_service.changes import Changes, wait_for_change
from mvprune_service.db import records
from mvprune_service.db.engine.database import Database
from mvprune_service.domain.machine import TERMINAL

_RECHECK_SECONDS = 10.0  # reads again even if no change was announced
_KEPT = 64  # events, for watchers that are a little behind
UNREAD = -1  # a version that no job has


class Feed:
    """One job, as its watchers see it. `version` changes with the job; it is None once the job is deleted."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.watchers = 0
        self.version: int | None = UNREAD
        self._job = job_pb2.Job()
        self._events: deque[job_pb2.JobEvent] = deque(maxlen=_KEPT)
        self.sequence = 0
        self._done = False
        self._responses: dict[
            int, job_pb2.WatchJobResponse
        ] = {}  # by the sequence number that a watcher has: most have the same
        self._error: Exception | None = None
        self._changed = asyncio.Event()

    async def change(self, version: int | None) -> None:
        """Waits until the feed knows another version than this one; UNREAD: any. Raises what ended it."""
        while self.version in (version, UNREAD) and self._error is None:
            await self._changed.wait()
        if self._error is not None:
            raise self._error

    def after(self, sequence: int) -> job_pb2.WatchJobResponse | None:
        """The response for a watcher that has events up to `sequence`; None if the next ones are not kept here."""
        if sequence < self.sequence - len(self._events):
            return None
        if sequence not in self._responses:
            self._responses[sequence] = self.page([e for e in self._events if e.sequence > sequence], sequence)
        return self._responses[sequence]

    def page(self, events: Sequence[job_pb2.JobEvent], after: int) -> job_pb2.WatchJobResponse:
        """The response with events that follow a sequence number."""
        reached = events[-1].sequence if events else after
        return job_pb2.WatchJobResponse(
            sequence=reached, job=self._job, events=events, done=self._done and reached >= self.sequence
        )

    async def keep(self, db: Database, changes: Changes) -> None:
        """Reads every change, until the job is deleted or cannot be read."""
        with changes.of_job(self.uid) as changed:
            try:
                while self.version is not None:
                    await self._read(db)
                    await wait_for_change(changed, _RECHECK_SECONDS)
            except Exception as error:
                self._error = error
                self._wake()

    async def _read(self, db: Database) -> None:
        job = await db.look_up(records.job_by_uid, self.uid)
        if job is not None and job.version == self.version:
            return
        if job is not None:
            known = max(self.sequence, job.last_sequence - _KEPT) if self.version != UNREAD else job.last_sequence
            if job.last_sequence > known:
                rows = await db.read(records.events_of, self.uid, known, job.last_sequence - known)
                self._events.extend(mapping.event(row) for row in rows)
                if len(rows) < job.last_sequence - known:  # deleted meanwhile
                    job = None
        if job is not None:
            self._job, self._done, self.sequence = mapping.job(job), job.state in TERMINAL, job.last_sequence
        self.version = None if job is None else job.version
        self._responses = {}
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Feeds:
    """The feeds of all jobs that are being watched."""

    def __init__(self, db: Database, changes: Changes) -> None:
        self._db = db
        self._changes = changes
        self._feeds: dict[str, tuple[Feed, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def of(self, uid: str) -> AsyncIterator[Feed]:
        """The feed of a job, for as long as somebody watches."""
        if uid not in self._feeds or self._feeds[uid][1].done():
            feed = Feed(uid)
            self._feeds[uid] = feed, asyncio.create_task(feed.keep(self._db, self._changes))
        feed, task = self._feeds[uid]
        feed.watchers += 1
        try:
            yield feed
        finally:
            feed.watchers -= 1
            if not feed.watchers:
                task.cancel()
                if self._feeds.get(uid) == (feed, task):
                    del self._feeds[uid]
