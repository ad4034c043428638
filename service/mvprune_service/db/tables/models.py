"""The tables. Times are microseconds since the epoch. Protobuf messages are stored serialized."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Named,
    Table,
    Text,
    TypedColumns,
    TypeDecorator,
    text,
)

from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, AttemptState, JobState, Wait

E = TypeVar("E", bound=StrEnum)

_TERMINAL_SQL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
_LIVE_SQL = ", ".join(f"'{state}'" for state in LIVE_ATTEMPTS)

# All constraints have predictable names, so that migrations can refer to them.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Member(TypeDecorator[E]):
    """Text that is the name of a member of an enumeration. Rows have the member."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[E]) -> None:
        super().__init__()
        self.kind = kind

    @property
    def python_type(self) -> type[str]:
        """The type that members have in common, as the driver takes it."""
        return str

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        """The member that was stored. Raises ValueError for text that is none."""
        return None if value is None else self.kind(value)


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
    accumulation_factor: Named[int] = Column(BigInteger)  # doubled when memory runs out, if the job allows that
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


class AttemptColumns(TypedColumns):
    """One execution of a job."""

    uid: Named[str] = Column(Text, primary_key=True)
    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"))
    number: Named[int] = Column(BigInteger)
    state: Named[AttemptState] = Column(Member(AttemptState))
    fencing_token: Named[int] = Column(BigInteger)
    executor: Named[str] = Column(Text)
    executor_ref: Named[str] = Column(Text)
    cpus: Named[float] = Column(Double)
    gpus: Named[float] = Column(Double)
    memory_bytes: Named[int] = Column(BigInteger)
    runner_id: Named[str | None] = Column(Text)
    node: Named[str] = Column(Text)
    manifest_sha256: Named[str | None] = Column(Text)
    failure_reason: Named[FailureReason | None] = Column(Member(FailureReason))
    failure_message: Named[str | None] = Column(Text)
    log_bytes: Named[int] = Column(BigInteger)
    create_us: Named[int] = Column(BigInteger)
    start_deadline_us: Named[int] = Column(BigInteger)
    start_us: Named[int | None] = Column(BigInteger)
    lease_expire_us: Named[int | None] = Column(BigInteger)
    heartbeat_us: Named[int | None] = Column(BigInteger)
    end_us: Named[int | None] = Column(BigInteger)
    parts: Named[int] = Column(BigInteger, server_default="1")  # of what is reserved, each on one node


ATTEMPTS = Table(
    "attempts",
    METADATA,
    AttemptColumns,
    Index("uq_attempts_job_uid_number", "job_uid", "number", unique=True),
    Index(
        "uq_attempts_one_live",
        "job_uid",
        unique=True,
        sqlite_where=text(f"state IN ({_LIVE_SQL})"),
        postgresql_where=text(f"state IN ({_LIVE_SQL})"),
    ),
    Index("ix_attempts_state", "state"),
    CheckConstraint(f"(end_us IS NULL) = (state IN ({_LIVE_SQL}))", name="end_unless_live"),
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


class ArtifactColumns(TypedColumns):
    """A published artifact. It remains when its job is deleted."""

    project: Named[str] = Column(Text, primary_key=True)
    sha256: Named[str] = Column(Text, primary_key=True)
    job_uid: Named[str | None] = Column(Text, ForeignKey("jobs.uid", ondelete="SET NULL"), index=True)
    attempt: Named[int] = Column(BigInteger)
    manifest_bytes: Named[int] = Column(BigInteger)
    manifest: Named[dict[str, Any]] = Column(JSON)
    create_us: Named[int] = Column(BigInteger)
    expire_us: Named[int | None] = Column(BigInteger)


ARTIFACTS = Table(
    "artifacts",
    METADATA,
    ArtifactColumns,
    Index("ix_artifacts_project_create_us", "project", "create_us", "sha256"),
    Index("ix_artifacts_expire_us", "expire_us"),
)


class MetricColumns(TypedColumns):
    """One recorded value; `id` is the order of arrival."""

    # SQLite increments only an INTEGER key.
    id: Named[int] = Column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"), index=True)
    attempt_uid: Named[str] = Column(Text, ForeignKey("attempts.uid", ondelete="CASCADE"))
    attempt: Named[int] = Column(BigInteger)
    metric: Named[str] = Column(Text)
    step: Named[int] = Column(BigInteger)
    value: Named[float] = Column(Double)
    time_us: Named[int] = Column(BigInteger)


METRICS = Table(
    "metrics",
    METADATA,
    MetricColumns,
    Index("uq_metrics_attempt_uid_metric_step", "attempt_uid", "metric", "step", unique=True),
)


class LogColumns(TypedColumns):
    """A piece of an attempt's log, by byte offset. What is before the first piece is in `log_chunks`."""

    attempt_uid: Named[str] = Column(Text, ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    offset: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    data: Named[bytes] = Column(LargeBinary)


LOGS = Table(
    "logs",
    METADATA,
    LogColumns,
)


class LogChunkColumns(TypedColumns):
    """A piece of an attempt's log that is in the store, as attempts/{attempt_uid}/logs/{uid}."""

    attempt_uid: Named[str] = Column(Text, ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    offset: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    size_bytes: Named[int] = Column(BigInteger)  # of the log
    uid: Named[str] = Column(Text)  # never used again
    sha256: Named[str] = Column(Text)  # of the object, which is compressed
    stored_bytes: Named[int] = Column(BigInteger)  # of the object
    create_us: Named[int] = Column(BigInteger)


LOG_CHUNKS = Table(
    "log_chunks",
    METADATA,
    LogChunkColumns,
)


class LongLogColumns(TypedColumns):
    """An attempt of whose log the database has, or will have, more than it keeps."""

    attempt_uid: Named[str] = Column(Text, ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    moved_bytes: Named[int] = Column(BigInteger)  # that are in the store: the offset of the first row of `logs`
    due_us: Named[int] = Column(BigInteger)  # until then a server is moving it


LONG_LOGS = Table(
    "long_logs",
    METADATA,
    LongLogColumns,
    Index("ix_long_logs_due_us", "due_us"),
)


class CheckpointColumns(TypedColumns):
    """A committed checkpoint: it was complete in the store when it was committed."""

    attempt_uid: Named[str] = Column(Text, ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    step: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"), index=True)
    manifest_sha256: Named[str] = Column(Text)
    create_us: Named[int] = Column(BigInteger)


CHECKPOINTS = Table(
    "checkpoints",
    METADATA,
    CheckpointColumns,
)
