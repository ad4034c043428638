"""The queue: jobs are placed in one transaction, so that no two replicas reserve the same resources.

domain/placement.py decides which job starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Connection, bindparam, func, or_, select, text, tuple_

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import leases, lifecycle
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Query, fetch_all
from mvprune_service.db.records import IS_LIVE
from mvprune_service.db.tables.attempts import ATTEMPTS, ReservedRow
from mvprune_service.db.tables.jobs import JOBS, QueuedRow, UidRow
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import AttemptState, JobState, Wait
from mvprune_service.domain.placement import GpuLimits, Placement, Reserved, Room, resolve
from mvprune_service.executors.base import Capacity
from mvprune_service.ids import first_uid

ACTOR = "scheduler"
_LONGEST_START_US = 24 * 3600 * SECOND  # of an attempt that is looked at
_PAGE = 100
_FIRST_PAGE = 8  # in most rounds there is no room for the first job
_LOCK = 0x6D767071  # of the whole queue, in PostgreSQL: a number that nothing else uses
_READY = (
    select(JOBS.c.uid, JOBS.c.project, JOBS.c.policy, JOBS.c.rank_us, JOBS.c.state_reason)
    .where(
        JOBS.c.state == JobState.QUEUED,
        JOBS.c.not_before_us <= bindparam("now_us"),
        or_(JOBS.c.teacher_uid.is_(None), JOBS.c.teacher_sha256.is_not(None)),
    )
    .order_by(JOBS.c.rank_us, JOBS.c.uid)
)
_FIRST_READY = Query(QueuedRow, _READY.limit(1))
_LATE = Query(UidRow, select(JOBS.c.uid).where(JOBS.c.queue_deadline_us < bindparam("now_us")).limit(1))
_SIZE = (ATTEMPTS.c.gpus, ATTEMPTS.c.cpus, ATTEMPTS.c.memory_bytes, ATTEMPTS.c.parts)
_RUNNING = Query(
    ReservedRow,
    select(JOBS.c.project, *_SIZE, func.count().label("number"))
    .join(JOBS, ATTEMPTS.c.job_uid == JOBS.c.uid)
    .where(IS_LIVE)
    .group_by(JOBS.c.project, *_SIZE)
    .order_by(*(size.desc() for size in _SIZE)),
)


def first_ready(conn: Connection, now: int) -> str | None:
    """The uid of the job that is first in the queue."""
    first = _FIRST_READY.first(conn, {"now_us": now})
    return None if first is None else first.uid


def has_expired(conn: Connection, now: int) -> bool:
    """Whether a job has stayed in the queue for too long."""
    return _LATE.first(conn, {"now_us": now}) is not None


def failed_types(conn: Connection, since_us: int) -> set[str]:
    """The types of nodes of which none was added for an attempt that ended since then, until its start timeout."""
    recent = ATTEMPTS.c.uid >= first_uid(since_us - _LONGEST_START_US)
    failed = (
        ATTEMPTS.c.state == AttemptState.FAILED,
        ATTEMPTS.c.failure_reason == FailureReason.START_TIMEOUT,
        ATTEMPTS.c.start_us.is_(None),
        ATTEMPTS.c.node != "",
        ATTEMPTS.c.end_us >= since_us,
    )
    return set(conn.execute(select(ATTEMPTS.c.node).where(recent, *failed).distinct()).scalars())


def place(tx: Tx, capacity: Capacity, gpu_limits: GpuLimits, *, executor: str, node_start_us: int = 0) -> int:
    """Starts the jobs that there is room for, in the order of the queue; returns how many.

    Args:
        node_start_us: what an attempt that waits for a new node gets beside its job's start timeout.
    """
    if tx.conn.dialect.name == "postgresql":
        tx.conn.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
    running = [
        (row.project, Reserved(row.cpus, row.gpus, row.memory_bytes, row.parts), row.number)
        for row in _RUNNING.all(tx.conn)
    ]
    room = Room(capacity, running, gpu_limits)
    started, over_quota = 0, set[str]()
    for job in _queue(tx, over_quota):
        policy = job_pb2.ExecutionPolicy.FromString(job.policy)
        wanted = resolve(policy.resources, capacity)
        placement = room.place(job.project, wanted)
        if placement is Placement.START:
            timeout = policy.start_timeout.ToMicroseconds() + (node_start_us if room.waits_for else 0)
            leases.schedule(tx, job.uid, wanted, executor=executor, start_timeout_us=timeout, waits_for=room.waits_for)
            started += 1
            continue
        reason = Wait.QUOTA if placement is Placement.OVER_QUOTA else Wait.CAPACITY
        if job.state_reason != reason:  # most have it already
            lifecycle.set_waiting(tx, job.uid, reason)
        if placement is Placement.OVER_QUOTA:
            over_quota.add(job.project)
        elif placement is Placement.NO_ROOM:
            break
    return started


def expire_queue(tx: Tx) -> int:
    """Fails jobs that stayed in the queue for longer than their max_queue_time; returns how many."""
    late = select(JOBS.c.uid).where(JOBS.c.queue_deadline_us < tx.now).limit(_PAGE).with_for_update(skip_locked=True)
    uids = tx.conn.execute(late).scalars().all()
    for uid in uids:
        job = lifecycle.lock_job(tx, uid)
        if job is not None and job.state is JobState.QUEUED:
            lifecycle.fail(tx, job, FailureReason.MAX_QUEUE_TIME, actor=ACTOR)
    return len(uids)


def _queue(tx: Tx, over_quota: set[str]) -> Iterator[QueuedRow]:
    """The queue in its order. Projects that are added to `over_quota` meanwhile are left out."""
    after: tuple[int, str] | None = None
    while True:
        size = _FIRST_PAGE if after is None else _PAGE
        page = _READY.limit(size)
        if after is not None:
            page = page.where(tuple_(JOBS.c.rank_us, JOBS.c.uid) > tuple_(*after))
        if over_quota:
            page = page.where(JOBS.c.project.not_in(over_quota))
        rows = fetch_all(tx.conn, QueuedRow, page.with_for_update(skip_locked=True), {"now_us": tx.now})
        for row in rows:
            if row.project not in over_quota:
                yield row
        if len(rows) < size:
            return
        after = (rows[-1].rank_us, rows[-1].uid)
