"""QUEUED → STARTING: in the order of rank, and only if the capacity is known."""

from __future__ import annotations

import asyncio
import logging

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import lifecycle, placement, quotas, teachers
from mvprune_service.db.engine.database import Database
from mvprune_service.domain.machine import Wait
from mvprune_service.executors.base import Executor, ExecutorUnavailable

_LEFT_OUT_US = 600 * SECOND  # of a type of node that was not added in time
log = logging.getLogger(__name__)


class Scheduler:
    """Starts jobs that fit, resolves students whose teacher has ended, fails jobs that waited too long."""

    def __init__(
        self,
        db: Database,
        executor: Executor,
        *,
        max_running_gpus: float | None = None,
        node_start_seconds: float = 0.0,
        clock: Clock = system_clock,
    ) -> None:
        self._db = db
        self._executor = executor
        self._max_running_gpus = max_running_gpus
        self._node_start_us = int(node_start_seconds * SECOND)
        self._clock = clock

    async def step(self) -> None:
        """One round over the queue."""
        for student in await self._db.read(teachers.unresolved_students):
            await self._db.write(teachers.resolve_teacher, student, actor=placement.ACTOR)
        await self._place()
        # After placing: a job that waited while no server ran gets a chance first.
        if await self._db.read(placement.has_expired, self._clock()):
            await self._db.write(placement.expire_queue)

    async def _place(self) -> None:
        first = await self._db.read(placement.first_ready, self._clock())
        if first is None:
            return
        try:
            capacity = await asyncio.to_thread(self._executor.capacity)
        except ExecutorUnavailable as error:
            log.warning("executor unreachable: %s", error)
            await self._db.write(lifecycle.set_waiting, first, Wait.EXECUTOR)
            return
        if capacity.absent:  # what could not be added is not waited for again at once
            since_us = self._clock() - _LEFT_OUT_US
            capacity = capacity.without(await self._db.read(placement.failed_types, since_us))
        limits = await self._db.read(quotas.gpu_limits, self._max_running_gpus)
        await self._db.write(
            placement.place, capacity, limits, executor=self._executor.name, node_start_us=self._node_start_us
        )
