"""What is only ever appended (logs, metrics) and what is only read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    func,
    insert,
    select,
    tuple_,
    update,
)

from mvprune_service.db.database import Tx
from mvprune_service.db.models import ArtifactRow, AttemptRow, EventRow, JobRow, LogRow, MetricRow, RequestRow
from mvprune_service.domain.machine import LIVE_ATTEMPTS, AttemptState
from mvprune_service.ids import ArtifactName, AttemptName, JobName

_jobs = JobRow.__table__
_attempts = AttemptRow.__table__
_Rows = Sequence[Row[Any]]
# Made once: that costs more than running it.
_JOB_NAMED = select(_jobs).where(_jobs.c.project == bindparam("in_project"), _jobs.c.job_id == bindparam("named"))
_JOB_BY_UID = select(_jobs).where(_jobs.c.uid == bindparam("by_uid"))
_JOB_OF_REQUEST = (
    select(RequestRow.body_sha256, _jobs)
    .join(_jobs, RequestRow.job_uid == _jobs.c.uid)
    .where(RequestRow.project == bindparam("in_project"), RequestRow.request_id == bindparam("made_by"))
)

LOG_CAP = 64 << 20  # bytes an attempt may log; what comes after is dropped


def job_named(conn: Connection, name: JobName) -> Row[Any] | None:
    """One job."""
    return conn.execute(_JOB_NAMED, {"in_project": name.project, "named": name.job}).one_or_none()


def job_of_request(conn: Connection, project: str, request_id: str) -> Row[Any] | None:
    """The job that a request id made, and the digest of that request's body."""
    return conn.execute(_JOB_OF_REQUEST, {"in_project": project, "made_by": request_id}).one_or_none()


def job_by_uid(conn: Connection, uid: str) -> Row[Any] | None:
    """One job."""
    return conn.execute(_JOB_BY_UID, {"by_uid": uid}).one_or_none()


@dataclass(frozen=True)
class Order:
    """The order of a list of jobs. Equal ones are ordered by age, in the same direction."""

    column: str  # create_time, state, task or model
    descending: bool

    def key(self, job: Row[Any]) -> tuple[int | str, ...]:
        """Where a job stands in this order."""
        return tuple(getattr(job, column.key) for column in self.columns)

    @property
    def key_types(self) -> tuple[type, ...]:
        """The types of the parts of a key."""
        return (int, str) if self.column == "create_time" else (str, int, str)

    @property
    def columns(self) -> tuple[Any, ...]:
        """The columns that make the key, the first one first."""
        age = (JobRow.create_us, JobRow.uid)
        return age if self.column == "create_time" else (getattr(JobRow, self.column), *age)


def page_of_jobs(
    conn: Connection,
    project: str,
    wanted: ColumnElement[bool] | None,
    order: Order,
    after: Sequence[int | str] | None,
    size: int,
) -> _Rows:
    """Jobs of a project that are `wanted` (None: all), from just after a key of `order`."""
    found = select(_jobs).where(JobRow.project == project)
    if wanted is not None:
        found = found.where(wanted)
    if after is not None:
        keys, last = tuple_(*order.columns), tuple_(*after)
        found = found.where(keys < last if order.descending else keys > last)
    directed = [column.desc() if order.descending else column.asc() for column in order.columns]
    return conn.execute(found.order_by(*directed).limit(size)).all()


def attempts_of(conn: Connection, job_uid: str, after: int, size: int) -> _Rows:
    """Attempts of a job, by number."""
    found = select(_attempts).where(AttemptRow.job_uid == job_uid, AttemptRow.number > after)
    return conn.execute(found.order_by(AttemptRow.number).limit(size)).all()


def attempt_named(conn: Connection, name: AttemptName) -> Row[Any] | None:
    """One attempt; number None means the job's newest."""
    number = JobRow.attempt if name.number is None else name.number
    return conn.execute(
        select(_attempts)
        .join(_jobs, AttemptRow.job_uid == JobRow.uid)
        .where(JobRow.project == name.project, JobRow.job_id == name.job, AttemptRow.number == number)
    ).one_or_none()


@dataclass(frozen=True)
class Live:
    """A live attempt with its job."""

    job: Row[Any]
    attempt: Row[Any]

    @property
    def name(self) -> AttemptName:
        return AttemptName(self.job.project, self.job.job_id, self.attempt.number)


def live_attempts(conn: Connection) -> list[Live]:
    """All attempts that hold or may come to hold resources."""
    rows = conn.execute(select(_attempts).where(AttemptRow.state.in_(LIVE_ATTEMPTS))).all()
    jobs = conn.execute(select(_jobs).where(JobRow.uid.in_([row.job_uid for row in rows]))).all()
    by_uid = {job.uid: job for job in jobs}
    return [Live(by_uid[row.job_uid], row) for row in rows if row.job_uid in by_uid]


def events_of(conn: Connection, job_uid: str, after: int, size: int) -> _Rows:
    """Events of a job after a sequence number."""
    found = select(EventRow.__table__).where(EventRow.job_uid == job_uid, EventRow.sequence > after)
    return conn.execute(found.order_by(EventRow.sequence).limit(size)).all()


def append_log(tx: Tx, attempt: Row[Any], offset: int, data: bytes) -> int:
    """Appends what is new of `data`; returns the next offset wanted. A gap is refused by answering the old offset."""
    stored: int = attempt.log_bytes
    fresh = data[stored - offset :] if offset <= stored else b""
    if not fresh:
        return stored
    if stored < LOG_CAP:
        tx.conn.execute(insert(LogRow).values(attempt_uid=attempt.uid, offset=stored, data=fresh))
        tx.changed.add(attempt.job_uid)
    tx.conn.execute(update(AttemptRow).where(AttemptRow.uid == attempt.uid).values(log_bytes=stored + len(fresh)))
    return stored + len(fresh)


def read_log(conn: Connection, attempt_uid: str, offset: int, limit: int) -> bytes:
    """Up to `limit` bytes of the log from `offset` on."""
    start = select(func.max(LogRow.offset)).where(LogRow.attempt_uid == attempt_uid, LogRow.offset <= offset)
    rows = conn.execute(
        select(LogRow.offset, LogRow.data)
        .where(LogRow.attempt_uid == attempt_uid, LogRow.offset >= start.scalar_subquery())
        .order_by(LogRow.offset)
        .limit(16)
    ).all()
    if not rows:
        return b""
    joined = b"".join(row.data for row in rows)
    return joined[offset - rows[0].offset :][:limit]


def add_metrics(tx: Tx, attempt: Row[Any], points: Sequence[tuple[str, int, float, int]]) -> None:
    """Appends (metric, step, value, time) points; what is known already is left as it is."""
    known = {
        tuple(row)
        for row in tx.conn.execute(
            select(MetricRow.metric, MetricRow.step).where(
                MetricRow.attempt_uid == attempt.uid, MetricRow.step.in_({step for _, step, _, _ in points})
            )
        )
    }
    fresh = {(metric, step): (value, time) for metric, step, value, time in points if (metric, step) not in known}
    if fresh:
        tx.conn.execute(
            insert(MetricRow),
            [
                {
                    "job_uid": attempt.job_uid,
                    "attempt_uid": attempt.uid,
                    "attempt": attempt.number,
                    "metric": metric,
                    "step": step,
                    "value": value,
                    "time_us": time,
                }
                for (metric, step), (value, time) in fresh.items()
            ],
        )


def metrics_of(conn: Connection, job_uid: str, after: int, size: int) -> _Rows:
    """Metric points of a job, in the order of their arrival."""
    found = select(MetricRow.__table__).where(MetricRow.job_uid == job_uid, MetricRow.id > after)
    return conn.execute(found.order_by(MetricRow.id).limit(size)).all()


def _artifacts() -> Select[Any]:
    return select(ArtifactRow.__table__, JobRow.job_id).outerjoin(_jobs, ArtifactRow.job_uid == JobRow.uid)


def artifact_named(conn: Connection, name: ArtifactName) -> Row[Any] | None:
    """One artifact, with the id of its job if that is still there."""
    return conn.execute(
        _artifacts().where(ArtifactRow.project == name.project, ArtifactRow.sha256 == name.sha256)
    ).one_or_none()


def page_of_artifacts(conn: Connection, project: str, before: tuple[int, str] | None, size: int) -> _Rows:
    """Artifacts of a project, newest first, from just before the key (create_us, sha256)."""
    found = _artifacts().where(ArtifactRow.project == project)
    if before:
        found = found.where(tuple_(ArtifactRow.create_us, ArtifactRow.sha256) < tuple_(*before))
    return conn.execute(found.order_by(ArtifactRow.create_us.desc(), ArtifactRow.sha256.desc()).limit(size)).all()


def is_over(attempt: Row[Any]) -> bool:
    """Whether the attempt has ended."""
    return AttemptState(attempt.state) not in LIVE_ATTEMPTS
