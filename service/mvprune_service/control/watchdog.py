"""Finds attempts that nobody carries any more, and ends jobs that are being cancelled.

A lease that ran out proves nothing: first the result marker is looked for, then the executor is asked, and only
EXITED or GONE ends the attempt. UNKNOWN waits. A server that just started expires no lease until it has been up for
one lease time, since workers may simply not have reached it yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.loop import for_each
from mvprune_service.db import leases, records
from mvprune_service.db.database import Database
from mvprune_service.db.leases import Fence
from mvprune_service.db.lifecycle import StaleLease
from mvprune_service.db.records import Live
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import AttemptState, JobState
from mvprune_service.executors.base import Executor, ExecutorUnavailable, Observation, Phase
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import ArtifactCorrupt, read_marker

log = logging.getLogger(__name__)

ACTOR = "watchdog"
_REPORT_US = 5 * SECOND  # a process that ended is given this long to be heard of by its own report
_OVER = (Phase.EXITED, Phase.GONE)
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Watchdog:
    """Ends what is over, whoever failed to say so."""

    def __init__(
        self, db: Database, executor: Executor, store: BlobStore, *, lease_seconds: float, clock: Clock = system_clock
    ) -> None:
        self._db = db
        self._executor = executor
        self._store = store
        self._clock = clock
        self._lease_us = int(lease_seconds * SECOND)
        self._amnesty_until = clock() + self._lease_us
        self._ended: dict[str, int] = {}  # attempt uid → when it was first seen to be over
        self._away: set[type[Exception]] = set()  # who did not answer in this round

    async def step(self) -> None:
        """One round over live attempts."""
        self._away = set()
        live_attempts = await self._db.read(records.live_attempts)
        self._ended = {uid: at for uid, at in self._ended.items() if uid in {x.attempt.uid for x in live_attempts}}
        # Those with a result are the finalizer's.
        await for_each((live for live in live_attempts if not live.attempt.manifest_sha256), self._watch)

    async def _watch(self, live: Live) -> None:
        try:
            if live.job.state == JobState.CANCELLING:
                await self._cancelling(live)
            elif live.job.state == JobState.STARTING:
                await self._starting(live)
            elif live.job.state == JobState.RUNNING:
                await self._running(live)
        except (ExecutorUnavailable, StoreUnavailable) as error:
            log.warning("%s waits: %s", live.name, error)
        except StaleLease:
            pass  # it moved on by itself meanwhile

    async def _starting(self, live: Live) -> None:
        now = self._clock()
        is_submitted = live.attempt.state == AttemptState.SUBMITTED
        seen = await self._observe(live) if is_submitted else Observation(Phase.UNKNOWN)
        if self._over(live, seen, now):
            await self._lost(live, seen)
        elif now > max(live.attempt.start_deadline_us, self._amnesty_until):
            message = live.attempt.failure_message or ""  # why the executor refuses it
            # Who still waits for room there has failed at nothing, nor has who cannot be asked about.
            counts = bool(message) or seen.phase not in (Phase.PENDING, Phase.UNKNOWN)
            await self._fail(live, FailureReason.START_TIMEOUT, message, counts=counts)
            await self._stop(live)

    async def _running(self, live: Live) -> None:
        now = self._clock()
        policy = job_pb2.ExecutionPolicy.FromString(live.job.policy)
        ran = live.job.ran_us + now - live.attempt.start_us
        if policy.HasField("max_runtime") and ran > policy.max_runtime.ToMicroseconds():
            if await self._adopt(live):
                return  # it ended in time, while no server was up
            await self._fail(live, FailureReason.MAX_RUNTIME, "")
            await self._stop(live)
            return
        if self._lasts(live.attempt.lease_expire_us or 0, now) or self._lasts(self._amnesty_until, now):
            return
        if await self._adopt(live):
            return
        seen = await self._observe(live)
        if self._over(live, seen, now):
            await self._lost(live, seen)

    async def _cancelling(self, live: Live) -> None:
        now, since, grace = self._clock(), live.job.cancel_us, live.job.cancel_grace_us
        running = live.attempt.state == AttemptState.RUNNING
        # A running worker hears of it with its next heartbeat; one that does not listen is stopped from outside.
        if not running or now > since + grace + self._lease_us:
            await self._stop(live)
        seen = await self._observe(live)
        # What waits for room can claim nothing any more, and may go on waiting: Ray stops it when it starts.
        waits = seen.phase is Phase.PENDING and not running
        if (self._over(live, seen, now) or waits) and not await self._adopt(live):
            await self._db.write(leases.stopped, self._fence(live), actor=ACTOR)

    async def _adopt(self, live: Live) -> bool:
        try:
            manifest = await self._ask(StoreUnavailable, read_marker, self._store, live.attempt.uid)
        except ArtifactCorrupt as error:
            await self._fail(live, FailureReason.ARTIFACT_CORRUPT, str(error))
            return True
        if manifest is None:
            return False
        await self._db.write(leases.offer, self._fence(live), manifest, actor=ACTOR)
        return True

    async def _observe(self, live: Live) -> Observation:
        if ExecutorUnavailable in self._away:
            return Observation(Phase.UNKNOWN)
        seen = await asyncio.to_thread(self._executor.observe, live.attempt.executor_ref)
        if seen.phase is Phase.UNKNOWN:
            self._away.add(ExecutorUnavailable)
        return seen

    async def _stop(self, live: Live) -> None:
        await self._ask(ExecutorUnavailable, self._executor.stop, live.attempt.executor_ref)

    async def _ask(self, away: type[Exception], question: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Asks the executor or the store; raises `away` at once if it has been silent in this round: a round waits for
        one timeout of each, however many attempts there are."""
        if away in self._away:
            raise away("not asked again in this round")
        try:
            return await asyncio.to_thread(question, *args, **kwargs)
        except away:
            self._away.add(away)
            raise

    def _lasts(self, until: int, now: int) -> bool:
        """Whether a lease goes on. One of far more than its length is of a clock that was set back since."""
        return now <= until <= now + 2 * self._lease_us

    def _over(self, live: Live, seen: Observation, now: int) -> bool:
        """EXITED or GONE, for long enough that a report under way would have arrived."""
        if seen.phase not in _OVER:
            self._ended.pop(live.attempt.uid, None)
            return False
        since = self._ended[live.attempt.uid] = min(now, self._ended.get(live.attempt.uid, now))
        return now - since >= _REPORT_US

    async def _lost(self, live: Live, seen: Observation) -> None:
        how = f"exit code {seen.exit_code}" if seen.exit_code is not None else seen.phase.value.lower()
        detail = f": {seen.detail}" if seen.detail else ""
        await self._fail(live, FailureReason.WORKER_LOST, f"the worker disappeared ({how}{detail})", lost=True)

    async def _fail(
        self, live: Live, reason: FailureReason, message: str, *, lost: bool = False, counts: bool = True
    ) -> None:
        fence = self._fence(live)
        await self._db.write(leases.fail_attempt, fence, reason, message, actor=ACTOR, lost=lost, counts=counts)

    @staticmethod
    def _fence(live: Live) -> Fence:
        return Fence(live.name, live.attempt.fencing_token)
