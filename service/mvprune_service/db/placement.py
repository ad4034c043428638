"""The queue: who starts next, decided in one transaction, so that no two replicas give the same room away.

Jobs are taken in the order of their rank, which is the time they came less a head start for their priority: all age
alike, so who waits is overtaken by nobody for ever.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, or_, select, text, tuple_

from mvprune.v1 import job_pb2
from mvprune_service.db import leases, lifecycle
from mvprune_service.db.database import Tx
from mvprune_service.db.leases import Reserved
from mvprune_service.db.models import ATTEMPTS, JOBS
from mvprune_service.db.quotas import GpuLimits
from mvprune_service.db.records import IS_LIVE
from mvprune_service.db.statements import Query
from mvprune_service.domain.failures import RULES, FailureReason
from mvprune_service.domain.machine import Command, JobState
from mvprune_service.executors.base import Capacity, Node

ACTOR = "scheduler"
CAPACITY = "WAITING_FOR_CAPACITY"
QUOTA = "WAITING_FOR_QUOTA"
_CPUS_BESIDE_A_GPU = 4.0
_CPUS_ALONE = 8.0
_ROUNDING = 1e-6  # of sums of shares
_PAGE = 100
_FIRST_PAGE = 8  # most rounds find no room for the first
_LOCK = 0x6D767071  # of the whole queue, in PostgreSQL; any number that nothing else uses
_READY = (
    select(JOBS.c.uid, JOBS.c.project, JOBS.c.policy, JOBS.c.rank_us, JOBS.c.state_reason)
    .where(
        JOBS.c.state == JobState.QUEUED,
        JOBS.c.not_before_us <= bindparam("now_us"),
        or_(JOBS.c.teacher_uid.is_(None), JOBS.c.teacher_sha256.is_not(None)),
    )
    .order_by(JOBS.c.rank_us, JOBS.c.uid)
)
_FIRST_READY = Query(_READY.limit(1))
_LATE = Query(select(JOBS.c.uid).where(JOBS.c.queue_deadline_us < bindparam("now_us")).limit(1))
_SIZE = (ATTEMPTS.c.gpus, ATTEMPTS.c.cpus, ATTEMPTS.c.memory_bytes)
_RUNNING = Query(  # how many of each size, and whose
    select(JOBS.c.project, *_SIZE, func.count().label("number"))
    .join(JOBS, ATTEMPTS.c.job_uid == JOBS.c.uid)
    .where(IS_LIVE)
    .group_by(JOBS.c.project, *_SIZE)
    .order_by(*(size.desc() for size in _SIZE))
)


class _Left:
    """What is left of a node."""

    def __init__(self, node: Node) -> None:
        self._cpus = node.cpus
        self._memory_bytes = node.memory_bytes
        self._gpus = [1.0] * int(node.gpus)  # of each, the least first

    def take(self, wanted: Reserved) -> bool:
        """Gives it away if it is there: whole GPUs, or a share of the one that is the fullest of those that have it."""
        share, number = min(wanted.gpus, 1.0), math.ceil(wanted.gpus)
        first = bisect_left(self._gpus, share - _ROUNDING)
        if (
            wanted.cpus > self._cpus + _ROUNDING
            or wanted.memory_bytes > self._memory_bytes
            or first + number > len(self._gpus)
        ):
            return False
        self._cpus -= wanted.cpus
        self._memory_bytes -= wanted.memory_bytes
        for index in range(first, first + number):
            self._gpus[index] -= share
        self._gpus.sort()
        return True


class Room:
    """What is left of the cluster, and of each project's share of its GPUs.

    Which node the executor chose for a running attempt is not known here: they are packed, the largest first, each on
    the first node that has it, those with the fewest GPUs first. Where the executor did otherwise, an attempt is
    started too late, when another has ended, or too early: it then waits with the executor, which uses up none of its
    job's attempts.
    """

    def __init__(self, capacity: Capacity, running: Sequence[Row[Any]], gpu_limits: GpuLimits) -> None:
        self._capacity = capacity
        self._limits = gpu_limits
        self._nodes = [_Left(node) for node in sorted(capacity.nodes, key=attrgetter("gpus", "cpus", "memory_bytes"))]
        self._used = Reserved(0.0, 0.0, 0)
        self._gpus: dict[str, float] = {}
        for row in running:
            given = Reserved(row.cpus, row.gpus, row.memory_bytes)
            self._pack(given, row.number)
            self._count(row.project, given, row.number)

    def exists_for(self, wanted: Reserved) -> bool:
        """Whether some node is large enough, were it empty."""
        return any(node.has(wanted.cpus, wanted.gpus, wanted.memory_bytes) for node in self._capacity.nodes)

    def is_allowed(self, project: str, wanted: Reserved) -> bool:
        """Whether the project's quota leaves it."""
        limit = self._limits.of(project)
        return limit is None or not wanted.gpus or self._gpus.get(project, 0.0) + wanted.gpus <= limit + _ROUNDING

    def take(self, project: str, wanted: Reserved) -> bool:
        """Gives room away, on one node. False where there is none."""
        # Of the whole too: what runs and fits nowhere, as after the loss of a node, is somewhere.
        if not (self._is_left(wanted) and self._pack(wanted, 1)):
            return False
        self._count(project, wanted, 1)
        return True

    def _is_left(self, wanted: Reserved) -> bool:
        used, capacity = self._used, self._capacity
        return (
            used.cpus + wanted.cpus <= capacity.cpus + _ROUNDING
            and used.gpus + wanted.gpus <= capacity.gpus + _ROUNDING
            and used.memory_bytes + wanted.memory_bytes <= capacity.memory_bytes
        )

    def _pack(self, given: Reserved, number: int) -> bool:
        """Puts so many of a size onto nodes; whether they all fit."""
        for node in self._nodes:
            while number and node.take(given):
                number -= 1
        return not number

    def _count(self, project: str, given: Reserved, number: int) -> None:
        used, gpus = self._used, number * given.gpus
        memory_bytes = used.memory_bytes + number * given.memory_bytes
        self._used = Reserved(used.cpus + number * given.cpus, used.gpus + gpus, memory_bytes)
        self._gpus[project] = self._gpus.get(project, 0.0) + gpus


def resolve(asked: job_pb2.Resources, capacity: Capacity) -> Reserved:
    """Fills in what the job leaves open, from the nodes that have what it asks for: one GPU where one of them has any,
    CPUs alone otherwise."""
    nodes = [node for node in capacity.nodes if node.has(asked.cpus, asked.gpus, asked.memory_bytes)]
    gpus = asked.gpus if asked.HasField("gpus") else float(any(node.gpus >= 1 for node in nodes))
    usual = _CPUS_BESIDE_A_GPU if gpus else _CPUS_ALONE
    most = max((node.cpus for node in nodes if node.gpus >= gpus), default=0.0)
    cpus = asked.cpus if asked.HasField("cpus") else min(usual, most)
    return Reserved(cpus=cpus, gpus=gpus, memory_bytes=asked.memory_bytes)


def first_ready(conn: Connection, now: int) -> str | None:
    """The uid of the job that would be started first, were there room."""
    first = _FIRST_READY.first(conn, {"now_us": now})
    return None if first is None else str(first.uid)


def is_anyone_late(conn: Connection, now: int) -> bool:
    """Whether `expire_queue` has something to do."""
    return _LATE.first(conn, {"now_us": now}) is not None


def place(tx: Tx, capacity: Capacity, gpu_limits: GpuLimits, *, executor: str) -> int:
    """Starts what there is room for; returns how many.

    A job that is too large for what is left holds up all behind it, lest it starve. One that no node could take even
    empty, or that its project's quota forbids, holds up nobody else's.
    """
    if tx.conn.dialect.name == "postgresql":
        tx.conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    room = Room(capacity, _RUNNING.all(tx.conn), gpu_limits)
    started, over_quota = 0, set[str]()
    for job in _queue(tx, over_quota):
        policy = job_pb2.ExecutionPolicy.FromString(job.policy)
        wanted = resolve(policy.resources, capacity)
        if not room.is_allowed(job.project, wanted):
            over_quota.add(job.project)
            _wait(tx, job, QUOTA)
        elif not room.exists_for(wanted):
            _wait(tx, job, CAPACITY)
        elif not room.take(job.project, wanted):
            _wait(tx, job, CAPACITY)
            break
        else:
            timeout = policy.start_timeout.ToMicroseconds()
            leases.schedule(tx, job.uid, wanted, executor=executor, start_timeout_us=timeout)
            started += 1
    return started


def _wait(tx: Tx, job: Row[str, str, bytes, int, str], reason: str) -> None:
    if job.state_reason != reason:  # most have been told already
        lifecycle.waiting(tx, job.uid, reason)


def expire_queue(tx: Tx) -> int:
    """Fails jobs that waited longer than they may; returns how many."""
    late = select(JOBS.c.uid).where(JOBS.c.queue_deadline_us < tx.now).limit(_PAGE).with_for_update(skip_locked=True)
    reason = FailureReason.MAX_QUEUE_TIME
    uids = tx.conn.execute(late).scalars().all()
    for uid in uids:
        job = lifecycle.lock_job(tx, uid)
        if job is not None and job.state == JobState.QUEUED:
            message = RULES[reason].text
            lifecycle.move(
                tx,
                job,
                Command.FAIL,
                ACTOR,
                {"reason": reason.value, "message": message},
                failure_reason=reason,
                failure_message=message,
                state_reason=reason.value,
            )
    return len(uids)


def _queue(tx: Tx, over_quota: set[str]) -> Iterator[Row[str, str, bytes, int, str]]:
    """The queue in its order, without projects that join `over_quota` on the way."""
    after: tuple[int, str] | None = None
    while True:
        size = _FIRST_PAGE if after is None else _PAGE
        page = _READY.limit(size)
        if after is not None:
            page = page.where(tuple_(JOBS.c.rank_us, JOBS.c.uid) > tuple_(*after))
        if over_quota:
            page = page.where(JOBS.c.project.not_in(over_quota))
        rows = tx.conn.execute(page.with_for_update(skip_locked=True), {"now_us": tx.now}).all()
        for row in rows:
            if row.project not in over_quota:
                yield row
        if len(rows) < size:
            return
        after = (rows[-1].rank_us, rows[-1].uid)
