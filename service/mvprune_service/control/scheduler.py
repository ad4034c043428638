"""QUEUED → STARTING: oldest first, only into capacity that is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Row

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import lifecycle, records, teachers
from mvprune_service.db.database import Database
from mvprune_service.db.lifecycle import Reserved
from mvprune_service.domain.machine import JobState
from mvprune_service.executors.base import Capacity, Executor, ExecutorUnavailable

log = logging.getLogger(__name__)

ACTOR = "scheduler"
WAITING = "WAITING_FOR_CAPACITY"
TEACHER = "WAITING_FOR_TEACHER"
UNREACHABLE = "EXECUTOR_UNREACHABLE"
_CPUS_BESIDE_A_GPU = 4.0
_CPUS_ALONE = 8.0


def resolve(asked: job_pb2.Resources, capacity: Capacity) -> Reserved:
    """Fills in what the job leaves open: one GPU where a node has one, CPUs alone otherwise."""
    gpus = asked.gpus if asked.HasField("gpus") else min(1.0, float(int(capacity.largest_gpus)))
    usual = _CPUS_BESIDE_A_GPU if gpus else _CPUS_ALONE
    cpus = asked.cpus if asked.HasField("cpus") else min(usual, capacity.largest_cpus)
    return Reserved(cpus=cpus, gpus=gpus, memory_bytes=asked.memory_bytes)


def fits(wanted: Reserved, used: Iterable[Reserved], capacity: Capacity) -> bool:
    """Whether the cluster has room beside what is reserved. (Which node has it is the executor's business.)"""
    reserved = list(used)
    return (
        wanted.cpus <= capacity.largest_cpus
        and wanted.gpus <= capacity.largest_gpus
        and wanted.memory_bytes <= capacity.largest_memory_bytes
        and sum(item.cpus for item in reserved) + wanted.cpus <= capacity.cpus + 1e-6
        and sum(item.gpus for item in reserved) + wanted.gpus <= capacity.gpus + 1e-6
        and sum(item.memory_bytes for item in reserved) + wanted.memory_bytes <= capacity.memory_bytes
    )


class Scheduler:
    """Starts what there is room for."""

    def __init__(self, db: Database, executor: Executor, clock: Clock = system_clock) -> None:
        self._db = db
        self._executor = executor
        self._clock = clock

    async def step(self) -> None:
        """One round over the queue."""
        queued = [
            job for job in await self._db.read(records.jobs_in, [JobState.QUEUED]) if job.not_before_us <= self._clock()
        ]
        queued = await self._taught(queued)
        if not queued:
            return
        try:
            capacity = await asyncio.to_thread(self._executor.capacity)
        except ExecutorUnavailable as error:
            log.warning("executor unreachable: %s", error)
            await self._db.write(lifecycle.waiting, queued[0].uid, UNREACHABLE)
            return
        live = await self._db.read(records.live_attempts)
        used = [Reserved(a.attempt.cpus, a.attempt.gpus, a.attempt.memory_bytes) for a in live]
        for job in queued:
            policy = job_pb2.ExecutionPolicy.FromString(job.policy)
            wanted = resolve(policy.resources, capacity)
            if not fits(wanted, used, capacity):
                await self._db.write(lifecycle.waiting, job.uid, WAITING)
                return  # no overtaking: a large job must not starve behind small ones
            used.append(wanted)
            await self._db.write(
                lifecycle.schedule,
                job.uid,
                wanted,
                executor=self._executor.name,
                start_timeout_us=policy.start_timeout.seconds * SECOND,
            )

    async def _taught(self, queued: list[Row[Any]]) -> list[Row[Any]]:
        """Those that wait for no teacher. A student whose teacher has ended is told so, and comes with the next
        round if it may start."""
        students = [job for job in queued if job.teacher_uid is not None and job.teacher_sha256 is None]
        if not students:
            return queued
        ended = await self._db.read(teachers.ended, {job.teacher_uid for job in students})
        for job in students:
            if job.teacher_uid in ended:
                await self._db.write(teachers.learn, job.uid, actor=ACTOR)
            elif job.state_reason != TEACHER:
                await self._db.write(lifecycle.waiting, job.uid, TEACHER)
        waiting = {job.uid for job in students}
        return [job for job in queued if job.uid not in waiting]
