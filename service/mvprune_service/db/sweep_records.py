"""Reads of sweeps and their points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, bindparam, func, select

from mvprune.v1 import sweep_pb2
from mvprune_service.db.engine.statements import Query, fetch_all, fetch_one
from mvprune_service.db.list_page import ListPage
from mvprune_service.db.tables.attempts import ATTEMPTS
from mvprune_service.db.tables.jobs import JOBS, JobColumns
from mvprune_service.db.tables.sweeps import (
    POINTS,
    SWEEP_EVENTS,
    SWEEP_REQUESTS,
    SWEEPS,
    PointRow,
    ShownPointRow,
    SweepEventRow,
    SweepRequestRow,
    SweepRow,
)
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.sweeping import ENDED, PointState, Reason, SweepState, point_state
from mvprune_service.ids import SweepName

_SWEEP_NAMED = Query(
    SweepRow, select(SWEEPS).where(SWEEPS.c.project == bindparam("in_project"), SWEEPS.c.sweep_id == bindparam("named"))
)
_SWEEP_BY_UID = Query(SweepRow, select(SWEEPS).where(SWEEPS.c.uid == bindparam("by_uid")))


class UidRow(NamedTuple):
    """The uid of a sweep."""

    uid: str


class Usage(NamedTuple):
    """The usage of jobs: microseconds of all attempts, and the same times their GPUs."""

    ran_us: int = 0
    gpu_us: float = 0.0


def sweep_named(conn: Connection, name: SweepName) -> SweepRow | None:
    """One sweep."""
    return _SWEEP_NAMED.first(conn, {"in_project": name.project, "named": name.sweep})


def sweep_by_uid(conn: Connection, uid: str) -> SweepRow | None:
    """One sweep."""
    return _SWEEP_BY_UID.first(conn, {"by_uid": uid})


def active_sweeps(conn: Connection) -> list[str]:
    """Uids of the sweeps that have not ended."""
    found = select(SWEEPS.c.uid).where(SWEEPS.c.state.not_in(ENDED)).order_by(SWEEPS.c.create_us)
    return [row.uid for row in fetch_all(conn, UidRow, found)]


def page_of_sweeps(conn: Connection, project: str, page: ListPage) -> list[SweepRow]:
    """Sweeps of a project."""
    return fetch_all(conn, SweepRow, page.of(select(SWEEPS).where(SWEEPS.c.project == project)))


def sweep_request(conn: Connection, project: str, request_id: str) -> SweepRequestRow | None:
    """The request that made a sweep under this request id."""
    is_it = SWEEP_REQUESTS.c.project == project, SWEEP_REQUESTS.c.request_id == request_id
    return fetch_one(conn, SweepRequestRow, select(SWEEP_REQUESTS).where(*is_it))


def sweep_events_of(conn: Connection, uid: str, after: int, size: int) -> list[SweepEventRow]:
    """Events of a sweep after a sequence number."""
    found = select(SWEEP_EVENTS).where(SWEEP_EVENTS.c.sweep_uid == uid, SWEEP_EVENTS.c.sequence > after)
    return fetch_all(conn, SweepEventRow, found.order_by(SWEEP_EVENTS.c.sequence).limit(size))


def points_of(conn: Connection, uid: str) -> list[PointRow]:
    """All points of a sweep, by number."""
    return fetch_all(conn, PointRow, _points().where(POINTS.c.sweep_uid == uid).order_by(POINTS.c.number))


def page_of_points(
    conn: Connection, uid: str, after: int, size: int, only: Sequence[int] | None = None
) -> list[ShownPointRow]:
    """Points of a sweep after a number; `only`: among these numbers."""
    shown = (POINTS.c.spec, JOBS.c.progress, JOBS.c.failure_reason, JOBS.c.failure_message)
    found = _points().add_columns(*shown).where(POINTS.c.sweep_uid == uid, POINTS.c.number > after)
    if only is not None:
        found = found.where(POINTS.c.number.in_(only))
    rows = conn.execute(found.order_by(POINTS.c.number).limit(size))
    width = len(PointRow._fields)
    return [ShownPointRow(PointRow._make(row[:width]), *row[width:]) for row in rows]


def specs_of(conn: Connection, uid: str, numbers: Sequence[int]) -> dict[int, bytes]:
    """The specs of points."""
    found = select(POINTS.c.number, POINTS.c.spec).where(POINTS.c.sweep_uid == uid, POINTS.c.number.in_(numbers))
    return {row.number: row.spec for row in conn.execute(found)}


def counts_of(conn: Connection, uid: str) -> Counter[str]:
    """How many points are in each state, by its name; and how many are `reused`, of those that succeeded, and how many
    `baselines` they share."""
    counts: Counter[str] = Counter()
    for state, had, again, skip, result, reused, count in _groups(conn, uid):
        found = point_state(
            job=None if state is None else JobState(state),
            had_job=bool(had),
            again=bool(again),
            skipped=bool(skip),
            has_result=bool(result),
        )
        counts[found] += count
        if reused and found is PointState.SUCCEEDED:
            counts["reused"] += count
    counts["baselines"] = conn.execute(select(func.count()).select_from(_baselines(uid).subquery())).scalar_one()
    return counts


def unchanging(conn: Connection, uid: str) -> Hashable | None:
    """A value that stays the same while a step of the sweep would change nothing. None where a step may always change
    something: the sweep is being cancelled, waits for room in the queue, has a budget, or stops jobs early."""
    sweep = sweep_by_uid(conn, uid)
    if sweep is None or sweep.state is SweepState.CANCELLING or sweep.state_reason == Reason.QUOTA:
        return None
    policy = sweep_pb2.SweepPolicy.FromString(sweep.policy)
    if policy.early_stop or policy.HasField("max_runtime") or policy.HasField("max_gpu_hours"):
        return None
    baselines = select(JOBS.c.state, func.count()).where(JOBS.c.uid.in_(_baselines(uid))).group_by(JOBS.c.state)
    groups = [*_groups(conn, uid), *conn.execute(baselines)]
    return sweep.version, frozenset(tuple(group) for group in groups)


def usage_of(conn: Connection, uid: str, now_us: int) -> tuple[Usage, Usage, int]:
    """The usage of a sweep: its jobs with their baselines; the baselines; and the microseconds that its jobs saved
    because one baseline serves several of them."""
    own = select(POINTS.c.job_uid).where(POINTS.c.sweep_uid == uid, POINTS.c.reused.is_(False))
    jobs = _usage(conn, ATTEMPTS.c.job_uid.in_(own), now_us)
    baselines = _usage(conn, ATTEMPTS.c.job_uid.in_(_baselines(uid)), now_us)
    return Usage(jobs.ran_us + baselines.ran_us, jobs.gpu_us + baselines.gpu_us), baselines, _saved_us(conn, uid)


def usage_of_job(conn: Connection, job_uid: str) -> Usage:
    """The usage of a job that has ended."""
    return _usage(conn, ATTEMPTS.c.job_uid == job_uid, 0)


def _groups(conn: Connection, uid: str) -> Sequence[Any]:
    """Facts that decide the state of points, and how many points have them: state of the job, whether there was one, is
    to run again, skipped, has a result, reused, count."""
    had_job, skipped, has_result = POINTS.c.job_id != "", POINTS.c.skip_reason != "", POINTS.c.result.is_not(None)
    keys = (JOBS.c.state, had_job, POINTS.c.again, skipped, has_result, POINTS.c.reused)
    joined = select(*keys, func.count()).outerjoin(JOBS, POINTS.c.job_uid == JOBS.c.uid)
    return conn.execute(joined.where(POINTS.c.sweep_uid == uid).group_by(*keys)).all()


def _usage(conn: Connection, which: Any, now_us: int) -> Usage:
    time = func.coalesce(ATTEMPTS.c.end_us, now_us) - ATTEMPTS.c.start_us
    sums = select(func.sum(time), func.sum(time * ATTEMPTS.c.gpus)).where(which, ATTEMPTS.c.start_us.is_not(None))
    ran, gpu = conn.execute(sums).one()
    return Usage(int(ran or 0), float(gpu or 0.0))


def _saved_us(conn: Connection, uid: str) -> int:
    """Training a baseline once instead of once for each job that has succeeded with it."""
    student, teacher = JOBS.alias("student").with_cols(JobColumns), JOBS.alias("teacher").with_cols(JobColumns)
    taught = (
        select(teacher.c.end_us - teacher.c.start_us, func.count())
        .select_from(POINTS)
        .join(student, student.c.uid == POINTS.c.job_uid)
        .join(teacher, teacher.c.uid == student.c.teacher_uid)
        .where(POINTS.c.sweep_uid == uid, POINTS.c.reused.is_(False), teacher.c.teacher_key.is_not(None))
        .where(student.c.state == JobState.SUCCEEDED)
        .group_by(teacher.c.uid, teacher.c.start_us, teacher.c.end_us)
    )
    return sum(int(ran or 0) * (students - 1) for ran, students in conn.execute(taught))


def _baselines(uid: str) -> Select[Any]:
    """Uids of the dense jobs that the points share, without those of reused results."""
    teacher = JOBS.alias("teacher").with_cols(JobColumns)
    return (
        select(teacher.c.uid)
        .select_from(POINTS)
        .join(JOBS, JOBS.c.uid == POINTS.c.job_uid)
        .join(teacher, teacher.c.uid == JOBS.c.teacher_uid)
        .where(POINTS.c.sweep_uid == uid, POINTS.c.reused.is_(False), teacher.c.teacher_key.is_not(None))
        .distinct()
    )


def _points() -> Select[Any]:
    own = [column for column in POINTS.c if column.key != "spec"]
    of_job = (JOBS.c.state.label("job_state"), JOBS.c.state_reason.label("job_reason"), JOBS.c.teacher_uid)
    return select(*own, *of_job).select_from(POINTS).outerjoin(JOBS, POINTS.c.job_uid == JOBS.c.uid)
