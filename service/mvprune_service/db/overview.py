"""The state of the queue and of the workers: a few counts over live rows, by index."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, column, func, or_, select, table, text, update

from mvprune_service.clock import SECOND
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS, LOG_CHUNKS, LONG_LOGS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.uploads import UPLOAD_CHUNKS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, AttemptState, JobState
from mvprune_service.domain.times import PRIORITY_POINT
from mvprune_service.ids import first_uid

_DAY_US = 24 * 3600 * SECOND
_SCHEMA = table("alembic_version", column("version_num"))
LIVE_JOBS = tuple(state for state in JobState if state not in TERMINAL)


@dataclass(frozen=True)
class Overview:
    """Jobs by state, and what is reserved for attempts. Times are microseconds since the epoch."""

    jobs: dict[str, int]
    oldest_queued_us: int | None  # None: no job waits, or only for a teacher
    live_attempts: int
    oldest_heartbeat_us: int | None  # of attempts whose worker has to send heartbeats
    waiting_logs: int  # of attempts that have ended, and whose logs are to be moved to the store
    cpus: float
    gpus: float
    memory_bytes: int


def running_attempts(conn: Connection) -> int:
    """How many attempts have a worker."""
    return conn.execute(select(func.count()).where(ATTEMPTS.c.state == AttemptState.RUNNING)).scalar_one()


def overview(conn: Connection, states: Iterable[JobState]) -> Overview:
    """Counts jobs in `states`, zeros included. Terminal states take time: there may be many such jobs."""
    states = list(states)
    counts = select(JOBS.c.state, func.count().label("number")).where(JOBS.c.state.in_(states)).group_by(JOBS.c.state)
    queued = select(func.min(JOBS.c.rank_us + JOBS.c.priority * PRIORITY_POINT)).where(
        JOBS.c.state == JobState.QUEUED, or_(JOBS.c.teacher_uid.is_(None), JOBS.c.teacher_sha256.is_not(None))
    )
    live = select(
        func.count(),
        func.coalesce(func.sum(ATTEMPTS.c.cpus), 0.0),
        func.coalesce(func.sum(ATTEMPTS.c.gpus), 0.0),
        func.coalesce(func.sum(ATTEMPTS.c.memory_bytes), 0),
    ).where(ATTEMPTS.c.state.in_(LIVE_ATTEMPTS))
    beats = select(func.min(ATTEMPTS.c.heartbeat_us)).where(
        ATTEMPTS.c.state == AttemptState.RUNNING, ATTEMPTS.c.lease_expire_us.is_not(None)
    )
    waiting = select(func.count()).select_from(LONG_LOGS).join(ATTEMPTS, ATTEMPTS.c.uid == LONG_LOGS.c.attempt_uid)
    count, cpus, gpus, memory = conn.execute(live).one()
    return Overview(
        jobs=dict.fromkeys(map(str, states), 0) | {row.state: row.number for row in conn.execute(counts)},
        oldest_queued_us=conn.execute(queued).scalar(),
        live_attempts=count,
        oldest_heartbeat_us=conn.execute(beats).scalar(),
        waiting_logs=conn.execute(waiting.where(ATTEMPTS.c.end_us.is_not(None))).scalar_one(),
        cpus=float(cpus),
        gpus=float(gpus),
        memory_bytes=int(memory),
    )


class StoreFailures(NamedTuple):
    """Attempts that ended because their workers could not use the store, and the message of the last one."""

    attempts: int
    last: str


def store_failures(conn: Connection, since_us: int) -> StoreFailures:
    """The attempts that ended so since a moment, of those that were created at most a day before it."""
    failed = (
        ATTEMPTS.c.uid >= first_uid(since_us - _DAY_US),
        ATTEMPTS.c.failure_reason == FailureReason.STORE_UNAVAILABLE,
        ATTEMPTS.c.end_us >= since_us,
    )
    found = conn.execute(select(ATTEMPTS.c.failure_message).where(*failed).order_by(ATTEMPTS.c.end_us.desc())).scalars()
    messages = found.all()
    return StoreFailures(len(messages), messages[0] or "" if messages else "")


def ping(conn: Connection) -> bool:
    """Returns True if the database answers, and raises otherwise."""
    return bool(conn.execute(text("SELECT 1")).scalar_one())


def write(tx: Tx) -> bool:
    """Returns True if the database accepts writes, and raises otherwise. Changes nothing."""
    # If several replicas do this at once, one write is enough, and none waits for a replica that hangs.
    unlocked = select(_SCHEMA.c.version_num).with_for_update(skip_locked=True)
    same = update(_SCHEMA).where(_SCHEMA.c.version_num.in_(unlocked)).values(version_num=_SCHEMA.c.version_num)
    tx.conn.execute(same)
    return True


def has_stored(conn: Connection) -> bool:
    """Whether the database refers to objects of the store."""
    stored = (
        select(ARTIFACTS.c.sha256),
        select(CHECKPOINTS.c.step),
        select(LOG_CHUNKS.c.uid),
        select(UPLOAD_CHUNKS.c.uid).where(UPLOAD_CHUNKS.c.is_ready),
    )
    return any(conn.execute(one.limit(1)).first() for one in stored)


def schema_revision(conn: Connection) -> str:
    """The newest Alembic revision applied."""
    return str(conn.execute(select(_SCHEMA.c.version_num)).scalar_one())
