"""Submits created attempts to the executor. Repeating it is harmless: the same ref is the same attempt.

No attempt is submitted before the store has a mark that covers it: see ownership.py. So attempts wait for the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from mvprune.common import tracing
from mvprune.common.units import counted
from mvprune.v1 import job_pb2
from mvprune_service.control.loop import for_each
from mvprune_service.control.ownership import Ownership
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.tables.attempts import Live
from mvprune_service.domain.dispatch import Problem, react
from mvprune_service.domain.placement import Reserved, workers_of
from mvprune_service.executors.base import Executor, ExecutorUnavailable, Launch, LaunchRefused
from mvprune_service.observability import logs, traces
from mvprune_service.secret import attempt_secret
from mvprune_service.stores.base import StoreUnavailable

log = logging.getLogger(__name__)


class Dispatcher:
    """Submits attempts.

    Args:
        ownership: marks the store.
        environment: variables of every worker: addresses, store, roots.
        python: path of the interpreter on the workers' machines.
    """

    def __init__(
        self,
        db: Database,
        executor: Executor,
        ownership: Ownership,
        key: bytes,
        environment: Mapping[str, str],
        *,
        python: str,
    ) -> None:
        self._db = db
        self._executor = executor
        self._ownership = ownership
        self._covered: set[str] = set()  # uids of attempts
        self._key = key
        self._environment = dict(environment)
        self._python = python

    async def step(self) -> None:
        """One round over attempts that no executor has yet."""
        attempts = await self._db.read(records.attempts_to_submit)
        uids = {live.attempt.uid for live in attempts}
        if not uids <= self._covered:
            try:
                await self._ownership.cover()
            except StoreUnavailable as error:
                log.warning("waiting for the store with %s: %s", counted(len(uids), "attempt"), error)
                return
        self._covered = uids
        await for_each(attempts, self._dispatch, (ExecutorUnavailable,))

    async def _dispatch(self, live: Live) -> None:
        try:
            await self._submit(live)
        except Exception as error:
            reaction = react(*_problem(error), live.attempt.failure_message)
            if reaction.message is not None:
                log.warning("%s", reaction.message)
                await self._db.write(leases.refused, live.attempt.uid, reaction.message)
            if reaction.raises:
                raise
        else:
            await self._db.write(leases.submitted, live.attempt.uid)

    async def _submit(self, live: Live) -> None:
        parent = await self._db.read(traces.of_job, live.job.uid)
        with tracing.span("schedule", parent, attempt=str(live.name)) as traceparent:
            await asyncio.to_thread(self._executor.submit, self.launch(live, traceparent))

    def launch(self, live: Live, traceparent: str = "") -> Launch:
        """The launch of an attempt."""
        name, attempt, token = str(live.name), live.attempt, live.attempt.fencing_token
        policy = job_pb2.ExecutionPolicy.FromString(live.job.policy)
        part = Reserved(attempt.cpus, attempt.gpus, attempt.memory_bytes, attempt.parts).part
        return Launch(
            ref=attempt.executor_ref,
            argv=(self._python, "-m", "mvprune_workers"),
            env={
                **self._environment,
                "MVPRUNE_ATTEMPT": name,
                "MVPRUNE_ATTEMPT_UID": attempt.uid,
                "MVPRUNE_FENCING_TOKEN": str(token),
                "MVPRUNE_ATTEMPT_SECRET": attempt_secret(self._key, name, token),
                "MVPRUNE_CPUS": str(part.cpus),
                "MVPRUNE_GPUS": str(part.gpus),
                "MVPRUNE_MEMORY_BYTES": str(part.memory_bytes),
                "MVPRUNE_WORKERS": str(workers_of(policy.resources)),
                "MVPRUNE_PARTS": str(attempt.parts),
                "TRACEPARENT": traceparent,
            },
            cpus=part.cpus,  # its trainer reserves the other parts
            gpus=part.gpus,
            memory_bytes=part.memory_bytes,
        )


def _problem(error: Exception) -> tuple[Problem, str]:
    """Why a submission failed, and a text about it without secrets."""
    if isinstance(error, LaunchRefused):
        return Problem.REFUSED, logs.redact(str(error))
    is_away = isinstance(error, ExecutorUnavailable | DatabaseUnavailable)
    return Problem.AWAY if is_away else Problem.BROKEN, type(error).__name__
