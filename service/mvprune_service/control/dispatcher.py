"""Hands created attempts to the executor. Repeating it is harmless: the same ref is the same attempt."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping

from mvprune.common import tracing
from mvprune_service.control.loop import for_each
from mvprune_service.db import leases, records
from mvprune_service.db.database import Database
from mvprune_service.db.outages import DatabaseUnavailable
from mvprune_service.db.records import Live
from mvprune_service.domain.machine import AttemptState, JobState
from mvprune_service.executors.base import Executor, ExecutorUnavailable, Launch, LaunchRefused
from mvprune_service.observability import logs, traces
from mvprune_service.secret import attempt_secret

log = logging.getLogger(__name__)


class Dispatcher:
    """Submits attempts. `environment` is the same for all of them: addresses, store, roots."""

    def __init__(self, db: Database, executor: Executor, key: bytes, environment: Mapping[str, str]) -> None:
        self._db = db
        self._executor = executor
        self._key = key
        self._environment = dict(environment)

    async def step(self) -> None:
        """One round over attempts that no executor has yet."""
        live_attempts = await self._db.read(records.live_attempts)
        created = (live for live in live_attempts if live.attempt.state == AttemptState.CREATED)
        starting = (live for live in created if live.job.state == JobState.STARTING)
        await for_each(starting, self._dispatch, (ExecutorUnavailable,))

    async def _dispatch(self, live: Live) -> None:
        try:
            await self._submit(live)
        except LaunchRefused as error:
            await self._refused(live, logs.redact(str(error)))
        except (ExecutorUnavailable, DatabaseUnavailable):
            raise
        except Exception as error:
            await self._refused(live, f"the server cannot launch it ({type(error).__name__}): its log has more")
            raise
        else:
            await self._db.write(leases.submitted, live.attempt.uid)

    async def _refused(self, live: Live, why: str) -> None:
        """Told once; the attempt is submitted again with each round, until its start_timeout."""
        if live.attempt.failure_message != why:
            log.warning("%s", why)
            await self._db.write(leases.refused, live.attempt.uid, why)

    async def _submit(self, live: Live) -> None:
        parent = await self._db.read(traces.of_job, live.job.uid)
        with tracing.span("schedule", parent, attempt=str(live.name)) as traceparent:
            await asyncio.to_thread(self._executor.submit, self.launch(live, traceparent))

    def launch(self, live: Live, traceparent: str = "") -> Launch:
        """What the executor is told to start."""
        name, token = str(live.name), live.attempt.fencing_token
        return Launch(
            ref=live.attempt.executor_ref,
            argv=(sys.executable, "-m", "mvprune_workers"),
            env={
                **self._environment,
                "MVPRUNE_ATTEMPT": name,
                "MVPRUNE_ATTEMPT_UID": live.attempt.uid,
                "MVPRUNE_FENCING_TOKEN": str(token),
                "MVPRUNE_ATTEMPT_SECRET": attempt_secret(self._key, name, token),
                "MVPRUNE_CPUS": str(live.attempt.cpus),
                "MVPRUNE_GPUS": str(live.attempt.gpus),
                "TRACEPARENT": traceparent,
            },
            cpus=live.attempt.cpus,
            gpus=live.attempt.gpus,
            memory_bytes=live.attempt.memory_bytes,
        )
