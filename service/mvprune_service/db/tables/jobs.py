"""Jobs, their labels, their events, and the requests that made them."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    LargeBinary,
    Named,
    Table,
    Text,
    TypedColumns,
    text,
)

from mvprune_service.db.tables.base import METADATA, Member
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, JobState, Wait
from mvprune_service.ids import JobName

_TERMINAL_SQL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))


class JobColumns(TypedColumns):
    """One compression job."""

    uid: Named[str] = Column(Text, primary_key=True)
    project: Named[str] = Column(Text)
    job_id: Named[str] = Column(Text)
    display_name: Named[str] = Column(Text)
    spec: Named[bytes] = Column(LargeBinary)  # CompressionSpec
    policy: Named[bytes] = Column(LargeBinary)  # ExecutionPolicy
    labels: Named[dict[str, str]] = Column(JSON)
    model_size: Named[bytes | None] = Column(LargeBinary)  # ModelSize
    creator: Named[str] = Column(Text)
    task: Named[str] = Column(Text)  # this and the next two: of the spec, to filter and order lists
    model: Named[str] = Column(Text)
    method: Named[str] = Column(Text)
    priority: Named[int] = Column(BigInteger)

    teacher_uid: Named[str | None] = Column(Text)  # the job whose model this one is distilled from; it may be deleted
    # The artifact of that job, once it has one. Until then this job waits.
    teacher_sha256: Named[str | None] = Column(Text)
    # Of a teacher that was made on request: a digest of its spec. Students with the same dense spec share the teacher.
    teacher_key: Named[str | None] = Column(Text)
    sweep_id: Named[str | None] = Column(Text)  # of the sweep that created the job

    state: Named[JobState] = Column(Member(JobState))
    state_reason: Named[str] = Column(Text)
    progress: Named[bytes | None] = Column(LargeBinary)  # Progress
    failure_reason: Named[FailureReason | None] = Column(Member(FailureReason))
    failure_message: Named[str | None] = Column(Text)
    artifact_sha256: Named[str | None] = Column(Text)
    metrics: Named[dict[str, Any]] = Column(JSON)
    # Of a SUCCEEDED job, to filter and order lists: the task's metric, and its final value and difference in `metrics`.
    primary_metric: Named[str | None] = Column(Text)
    metric: Named[float | None] = Column(Double)
    difference: Named[float | None] = Column(Double)
    gate_results: Named[bytes | None] = Column(LargeBinary)  # of a result: a Job with gate_results and notes

    attempt: Named[int] = Column(BigInteger)  # number of the newest attempt, 0 before the first
    attempts_left: Named[int] = Column(BigInteger)
    # Identifies the one lease that may report. It grows whenever an attempt begins or ends.
    fencing_token: Named[int] = Column(BigInteger)
    not_before_us: Named[int] = Column(BigInteger)  # back-off
    # The order of the queue: the smallest is first. See domain/times.py.
    rank_us: Named[int] = Column(BigInteger)
    queue_deadline_us: Named[int | None] = Column(BigInteger)  # of a QUEUED job that may not wait for ever
    ran_us: Named[int] = Column(BigInteger)  # RUNNING, in attempts that have ended
    accumulation_factor: Named[int] = Column(BigInteger)  # doubled when memory runs out
    cancel_reason: Named[str | None] = Column(Text)
    cancel_grace_us: Named[int | None] = Column(BigInteger)
    cancel_us: Named[int | None] = Column(BigInteger)

    create_us: Named[int] = Column(BigInteger)
    start_us: Named[int | None] = Column(BigInteger)
    end_us: Named[int | None] = Column(BigInteger)
    duration_us: Named[int | None] = Column(BigInteger)  # from start_us to end_us, to filter and order lists
    # Of a job that has ended and has a retention: then the job and its artifact are deleted.
    expire_us: Named[int | None] = Column(BigInteger)
    update_us: Named[int] = Column(BigInteger)
    version: Named[int] = Column(BigInteger)  # the etag
    last_sequence: Named[int] = Column(BigInteger)  # of its events
    note: Named[str | None] = Column(Text)


ORDERED = ("metric", "difference", "duration_us", "failure_reason")  # columns of jobs that are null until the end


def _index_of_values(column: str) -> Index:
    """The jobs with a value in a column, in its order. A new job has none and costs nothing here."""
    has_value = text(f"{column} IS NOT NULL")
    name = f"ix_jobs_project_{column}"
    return Index(name, "project", column, "create_us", "uid", sqlite_where=has_value, postgresql_where=has_value)


JOBS = Table(
    "jobs",
    METADATA,
    JobColumns,
    Index("uq_jobs_project_job_id", "project", "job_id", unique=True),
    # The last four columns find the jobs without a value, for lists in the order of one, without reading the table.
    Index("ix_jobs_project_create_us", "project", "create_us", "uid", *ORDERED),
    Index("ix_jobs_project_state", "project", "state", "create_us", "uid"),
    Index("ix_jobs_project_task", "project", "task", "create_us", "uid"),
    Index("ix_jobs_project_model", "project", "model", "create_us", "uid"),
    *map(_index_of_values, ORDERED),
    Index("ix_jobs_state", "state", "rank_us", "uid"),
    Index("ix_jobs_queue_deadline_us", "queue_deadline_us"),
    Index(
        "ix_jobs_untaught",
        "teacher_uid",
        sqlite_where=text(f"state_reason = '{Wait.TEACHER}'"),
        postgresql_where=text(f"state_reason = '{Wait.TEACHER}'"),
    ),
    Index("ix_jobs_expire_us", "expire_us"),
    Index("uq_jobs_project_teacher_key", "project", "teacher_key", unique=True),
    Index(
        "ix_jobs_project_sweep_id",
        "project",
        "sweep_id",
        sqlite_where=text("sweep_id IS NOT NULL"),
        postgresql_where=text("sweep_id IS NOT NULL"),
    ),
    CheckConstraint(f"(end_us IS NOT NULL) = (state IN ({_TERMINAL_SQL}))", name="end_in_terminal"),
)


class JobRow(NamedTuple):
    """A row of `jobs`."""

    uid: str
    project: str
    job_id: str
    display_name: str
    spec: bytes
    policy: bytes
    labels: dict[str, str]
    model_size: bytes | None
    creator: str
    task: str
    model: str
    method: str
    priority: int
    teacher_uid: str | None
    teacher_sha256: str | None
    teacher_key: str | None
    sweep_id: str | None
    state: JobState
    state_reason: str
    progress: bytes | None
    failure_reason: FailureReason | None
    failure_message: str | None
    artifact_sha256: str | None
    metrics: dict[str, Any]
    primary_metric: str | None
    metric: float | None
    difference: float | None
    gate_results: bytes | None
    attempt: int
    attempts_left: int
    fencing_token: int
    not_before_us: int
    rank_us: int
    queue_deadline_us: int | None
    ran_us: int
    accumulation_factor: int
    cancel_reason: str | None
    cancel_grace_us: int | None
    cancel_us: int | None
    create_us: int
    start_us: int | None
    end_us: int | None
    duration_us: int | None
    expire_us: int | None
    update_us: int
    version: int
    last_sequence: int
    note: str | None

    @property
    def name(self) -> JobName:
        """The job's resource name."""
        return JobName(self.project, self.job_id)


class QueuedRow(NamedTuple):
    """The columns of `jobs` that decide which job starts next."""

    uid: str
    project: str
    policy: bytes
    rank_us: int
    state_reason: str


class UidRow(NamedTuple):
    """The uid of a job."""

    uid: str


class LabelColumns(TypedColumns):
    """A label of a job, for filters."""

    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True)
    key: Named[str] = Column(Text, primary_key=True)
    value: Named[str] = Column(Text)
    project: Named[str] = Column(Text)


LABELS = Table(
    "labels",
    METADATA,
    LabelColumns,
    Index("ix_labels_project_key_value", "project", "key", "value", "job_uid"),
)


class EventColumns(TypedColumns):
    """Audit trail and watch feed: an event is written in the transaction of its change."""

    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True)
    sequence: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    time_us: Named[int] = Column(BigInteger)
    type: Named[str] = Column(Text)
    actor: Named[str] = Column(Text)
    from_state: Named[str | None] = Column(Text)
    to_state: Named[str | None] = Column(Text)
    details: Named[dict[str, str]] = Column(JSON)


EVENTS = Table(
    "events",
    METADATA,
    EventColumns,
)


class EventRow(NamedTuple):
    """A row of `events`."""

    job_uid: str
    sequence: int
    time_us: int
    type: str
    actor: str
    from_state: str | None
    to_state: str | None
    details: dict[str, str]


class RequestColumns(TypedColumns):
    """Idempotency: which job a request created, and the digest of the request's body."""

    project: Named[str] = Column(Text, primary_key=True)
    request_id: Named[str] = Column(Text, primary_key=True)
    body_sha256: Named[str] = Column(Text)
    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"), index=True)
    create_us: Named[int] = Column(BigInteger)


REQUESTS = Table(
    "requests",
    METADATA,
    RequestColumns,
    Index("ix_requests_create_us", "create_us"),
)


class RequestRow(NamedTuple):
    """A row of `requests`."""

    project: str
    request_id: str
    body_sha256: str
    job_uid: str
    create_us: int
