"""Ends attempts whose process is gone, and jobs that are being cancelled. domain/watching.py decides.

A server that has just started ends no lease before one lease time has passed: workers may not have reached it yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ParamSpec, TypeVar

from sqlalchemy import Connection

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.loop import for_each
from mvprune_service.control.pace import Pace
from mvprune_service.control.processes import keep_output
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.attempts import Live
from mvprune_service.domain.leases import StaleLease
from mvprune_service.domain.machine import AttemptState, JobState
from mvprune_service.domain.outputs import last_line
from mvprune_service.domain.watching import (
    LONGEST_LEASES,
    OVER,
    Facts,
    Fail,
    Offer,
    Process,
    Result,
    Silence,
    Step,
    decide,
)
from mvprune_service.executors.base import Executor, ExecutorUnavailable, Observation, Phase
from mvprune_service.observability.logs import redact
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import ArtifactCorrupt, read_marker

log = logging.getLogger(__name__)

ACTOR = "watchdog"
_PART = "workers"  # among the problems
_P = ParamSpec("_P")
_T = TypeVar("_T")


class WorkerSilent(Exception):
    """A worker runs and has not called the server."""


class Watchdog:
    """Ends attempts that are over and were not reported."""

    def __init__(
        self,
        db: Database,
        executor: Executor,
        store: BlobStore,
        *,
        pace: Pace,
        problems: Problems,
        clock: Clock = system_clock,
    ) -> None:
        self._db = db
        self._executor = executor
        self._store = store
        self._clock = clock
        self._pace = pace
        self._problems = problems
        self._started = clock()
        self._all_us = 0  # when all attempts were looked at
        self._since: dict[tuple[str, bool], int] = {}  # attempt uid, is over → when it was first seen so
        self._away: set[type[Exception]] = set()  # what did not answer in this round

    async def step(self) -> None:
        """One round over the attempts that may be over."""
        self._away = set()
        watched = await self._db.read(self._watched, self._clock())
        uids = {live.attempt.uid for live in watched}
        self._since = {seen: at for seen, at in self._since.items() if seen[0] in uids}
        self._show(watched)
        await for_each(watched, self._watch)

    def _watched(self, conn: Connection, now: int) -> list[Live]:
        """The attempts of a round. Those with a result are the finalizer's. Of those that run and have a lease nothing
        can be wrong but that they take too long: they are looked at once in the interval of heartbeats."""
        if not 0 <= now - self._all_us < self._pace.interval_seconds * SECOND:
            self._all_us = now
            return records.attempts_without_result(conn)
        return records.attempts_without_lease(conn, now, now + LONGEST_LEASES * self._pace.lease_us)

    def _show(self, watched: Iterable[Live]) -> None:
        """Puts the workers that do not call among the problems."""
        silent = [live for live in watched if _is_silent(live)]
        if not silent:
            self._problems.clear(_PART)
            return
        others = f" (and {len(silent) - 1:,} more)" if len(silent) > 1 else ""
        self._problems.report(_PART, WorkerSilent(f"{silent[0].name}{others}: {silent[0].attempt.failure_message}"))

    async def _watch(self, live: Live) -> None:
        try:
            await self._follow(live)
        except (ExecutorUnavailable, StoreUnavailable) as error:
            log.warning("%s waits: %s", live.name, error)
        except StaleLease:
            pass  # it has changed meanwhile

    async def _follow(self, live: Live) -> None:
        """Finds out the facts that the decision needs, and does what is decided."""
        facts = self._facts(live)
        while True:
            match decide(facts):
                case Step.OBSERVE:
                    facts = replace(facts, process=await self._observe(live, facts.now))
                case Step.LOOK:
                    facts = replace(facts, result=await self._look(live))
                case Step.STOP:
                    await self._stop(live)
                    facts = replace(facts, stop_sent=True)
                case Step.CANCELLED:
                    return await self._db.write(leases.stopped, _fence(live), actor=ACTOR)
                case Offer(manifest_sha256):
                    return await self._db.write(leases.offer, _fence(live), manifest_sha256, actor=ACTOR)
                case Fail(failure, stop):
                    await self._db.write(leases.fail_attempt, _fence(live), failure, actor=ACTOR)
                    if stop:
                        await self._stop(live)
                    if live.job.state is JobState.STARTING:  # nothing of its log has arrived
                        await keep_output(self._db, self._executor, live.attempt.executor_ref)
                    return None
                case Silence(message):
                    log.warning("%s: %s", live.name, message)
                    return await self._db.write(leases.silent, _fence(live), message, actor=ACTOR)
                case Step.WAIT:
                    return None

    def _facts(self, live: Live) -> Facts:
        job, attempt = live.job, live.attempt
        policy = job_pb2.ExecutionPolicy.FromString(job.policy)
        return Facts(
            job=job.state,
            attempt=attempt.state,
            now=self._clock(),
            lease_us=self._pace.lease_us,
            amnesty_until=self._started + self._pace.lease_us,
            start_deadline_us=attempt.start_deadline_us,
            refusal=attempt.failure_message or "",
            start_us=attempt.start_us,
            lease_expire_us=attempt.lease_expire_us,
            ran_us=job.ran_us,
            max_runtime_us=policy.max_runtime.ToMicroseconds() if policy.HasField("max_runtime") else None,
            cancel_by_us=(job.cancel_us or 0) + (job.cancel_grace_us or 0),
        )

    async def _look(self, live: Live) -> Result:
        try:
            return Result(await self._ask(StoreUnavailable, read_marker, self._store, live.attempt.uid))
        except ArtifactCorrupt as error:
            return Result(damage=str(error))

    async def _observe(self, live: Live, now: int) -> Process:
        if ExecutorUnavailable in self._away:
            seen = Observation(Phase.UNKNOWN)
        else:
            seen = await asyncio.to_thread(self._executor.observe, live.attempt.executor_ref)
        if seen.phase is Phase.UNKNOWN:
            self._away.add(ExecutorUnavailable)
        over = self._passed(live, now, is_over=True, holds=seen.phase in OVER)
        process = Process(seen, over, self._passed(live, now, is_over=False, holds=seen.phase is Phase.RUNNING))
        starting = live.job.state is JobState.STARTING
        if starting and (process.is_over or (process.is_silent and not live.attempt.failure_message)):
            output = await self._ask(ExecutorUnavailable, self._executor.output, live.attempt.executor_ref)
            return replace(process, last_line=redact(last_line(output)))
        return process

    def _passed(self, live: Live, now: int, *, is_over: bool, holds: bool) -> int:
        """For how long a process has been seen to be over, or to run; 0 if it does not now."""
        seen = live.attempt.uid, is_over
        if not holds:
            self._since.pop(seen, None)
            return 0
        since = self._since[seen] = min(now, self._since.get(seen, now))
        return now - since

    async def _stop(self, live: Live) -> None:
        await self._ask(ExecutorUnavailable, self._executor.stop, live.attempt.executor_ref)

    async def _ask(self, away: type[Exception], question: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Asks the executor or the store. Raises `away` at once if it did not answer before in this round, so that a
        round waits for one timeout of each, however many attempts there are."""
        if away in self._away:
            raise away("not asked again in this round")
        try:
            return await asyncio.to_thread(question, *args, **kwargs)
        except away:
            self._away.add(away)
            raise


def _fence(live: Live) -> Fence:
    return Fence(live.name, live.attempt.fencing_token)


def _is_silent(live: Live) -> bool:
    """Whether a Silence is recorded: what the executor said before it took the attempt is cleared."""
    submitted = live.job.state is JobState.STARTING and live.attempt.state is AttemptState.SUBMITTED
    return submitted and bool(live.attempt.failure_message)
