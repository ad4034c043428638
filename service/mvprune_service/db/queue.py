"""The queue as a project sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, func, or_, select, tuple_

from mvprune_service.db.tables.attempts import ATTEMPTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, JobState

_QUEUED = JOBS.c.state == JobState.QUEUED
_HAS_TEACHER = or_(JOBS.c.teacher_uid.is_(None), JOBS.c.teacher_sha256.is_not(None))
_ORDER = (JOBS.c.rank_us, JOBS.c.uid)  # as db/placement.py takes them


class Waiting(NamedTuple):
    """A job that is queued, and how many that could start are before it."""

    job_id: str
    display_name: str
    policy: bytes
    priority: int
    state_reason: str
    create_us: int
    rank_us: int
    uid: str
    ahead: int


class Load(NamedTuple):
    """Jobs of all projects, and what is reserved for their attempts."""

    queued: int
    running: int
    cpus: float
    gpus: float
    memory_bytes: int


def page_of_queue(conn: Connection, project: str, after: Sequence[Any] | None, size: int) -> list[Waiting]:
    """Queued jobs of a project in the order in which they will start, from just after the key (rank_us, uid)."""
    own = select(JOBS).where(_QUEUED, JOBS.c.project == project)
    if after:
        own = own.where(tuple_(*_ORDER) > tuple_(*after))
    rows = conn.execute(own.order_by(*_ORDER).limit(size)).all()
    if not rows:
        return []
    ahead = _count(conn, _QUEUED, _HAS_TEACHER, tuple_(*_ORDER) < tuple_(rows[0].rank_us, rows[0].uid))
    span = tuple_(*_ORDER).between(tuple_(rows[0].rank_us, rows[0].uid), tuple_(rows[-1].rank_us, rows[-1].uid))
    between = conn.execute(select(*_ORDER).where(_QUEUED, _HAS_TEACHER, span).order_by(*_ORDER)).all()
    keys = [tuple(key) for key in between]
    found, passed = [], 0
    for row in rows:
        while passed < len(keys) and keys[passed] < (row.rank_us, row.uid):
            passed += 1
        values = {name: getattr(row, name) for name in Waiting._fields if name != "ahead"}
        found.append(Waiting(**values, ahead=ahead + passed))
    return found


def load(conn: Connection) -> Load:
    """What all projects have in the queue and in the cluster."""
    held = select(
        func.coalesce(func.sum(ATTEMPTS.c.cpus), 0.0),
        func.coalesce(func.sum(ATTEMPTS.c.gpus), 0.0),
        func.coalesce(func.sum(ATTEMPTS.c.memory_bytes), 0),
    ).where(ATTEMPTS.c.state.in_(LIVE_ATTEMPTS))
    cpus, gpus, memory = conn.execute(held).one()
    running = _count(conn, JOBS.c.state.in_(set(JobState) - TERMINAL - {JobState.QUEUED}))
    return Load(_count(conn, _QUEUED), running, float(cpus), float(gpus), int(memory))


def _count(conn: Connection, *where: ColumnElement[bool]) -> int:
    return conn.execute(select(func.count()).select_from(JOBS).where(*where)).scalar_one()
