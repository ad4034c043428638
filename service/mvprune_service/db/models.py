"""The schema. Times are microseconds since the epoch; protobuf messages are stored serialized."""

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
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, AttemptState, JobState

E = TypeVar("E", bound=StrEnum)

_TERMINAL_SQL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
_LIVE_SQL = ", ".join(f"'{state}'" for state in LIVE_ATTEMPTS)

# All constraints have predictable names, so that migrations can speak of them.
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
    task: Named[str] = Column(Text)  # of the spec, as are these two: what lists are filtered and ordered by
    model: Named[str] = Column(Text)
    method: Named[str] = Column(Text)
    priority: Named[int] = Column(BigInteger)

    teacher_uid: Named[str | None] = Column(Text)  # the job whose model this one learns from; it may be deleted
    # That job's artifact, once there is one: until then this job waits.
    teacher_sha256: Named[str | None] = Column(Text)
    # Of a teacher that was made on request: a digest of its spec. Students with the same dense spec share the teacher.
    teacher_key: Named[str | None] = Column(Text)

    state: Named[JobState] = Column(Member(JobState))
    state_reason: Named[str] = Column(Text)
    progress: Named[bytes | None] = Column(LargeBinary)  # Progress
    failure_reason: Named[FailureReason | None] = Column(Member(FailureReason))
    failure_message: Named[str | None] = Column(Text)
    artifact_sha256: Named[str | None] = Column(Text)
    metrics: Named[dict[str, Any]] = Column(JSON)
    gate_results: Named[bytes | None] = Column(LargeBinary)  # once they are evaluated: a Job that has nothing else

    attempt: Named[int] = Column(BigInteger)  # number of the newest attempt, 0 before the first
    attempts_left: Named[int] = Column(BigInteger)
    # Names the one lease that may report. Grows whenever an attempt begins or ends, so a stale token matches nothing.
    fencing_token: Named[int] = Column(BigInteger)
    not_before_us: Named[int] = Column(BigInteger)  # back-off
    # The queue's order. Waiting makes all jobs older alike, so ageing never changes who is first: priority is a head
    # start in time, given once.
    rank_us: Named[int] = Column(BigInteger)
    queue_deadline_us: Named[int | None] = Column(BigInteger)  # where it is QUEUED and may not wait for ever
    ran_us: Named[int] = Column(BigInteger)  # RUNNING, in attempts that have ended
    accumulation_factor: Named[int] = Column(BigInteger)  # doubled when memory runs out and that is allowed
    cancel_reason: Named[str | None] = Column(Text)
    cancel_grace_us: Named[int | None] = Column(BigInteger)
    cancel_us: Named[int | None] = Column(BigInteger)

    create_us: Named[int] = Column(BigInteger)
    start_us: Named[int | None] = Column(BigInteger)
    end_us: Named[int | None] = Column(BigInteger)
    # From its end on, where it has a retention: then it and its artifact are deleted.
    expire_us: Named[int | None] = Column(BigInteger)
    update_us: Named[int] = Column(BigInteger)
    version: Named[int] = Column(BigInteger)  # the etag
    last_sequence: Named[int] = Column(BigInteger)  # of its events


JOBS = Table(
    "jobs",
    METADATA,
    JobColumns,
    Index("uq_jobs_project_job_id", "project", "job_id", unique=True),
    Index("ix_jobs_project_create_us", "project", "create_us", "uid"),
    Index("ix_jobs_project_state", "project", "state", "create_us", "uid"),
    Index("ix_jobs_project_task", "project", "task", "create_us", "uid"),
    Index("ix_jobs_project_model", "project", "model", "create_us", "uid"),
    Index("ix_jobs_state", "state", "rank_us", "uid"),
    Index("ix_jobs_queue_deadline_us", "queue_deadline_us"),
    Index(
        "ix_jobs_untaught",
        "teacher_uid",
        sqlite_where=text("state_reason = 'WAITING_FOR_TEACHER'"),
        postgresql_where=text("state_reason = 'WAITING_FOR_TEACHER'"),
    ),
    Index("ix_jobs_expire_us", "expire_us"),
    Index("uq_jobs_project_teacher_key", "project", "teacher_key", unique=True),
    CheckConstraint(f"(end_us IS NOT NULL) = (state IN ({_TERMINAL_SQL}))", name="end_in_terminal"),
)


class LabelColumns(TypedColumns):
    """A label of a job, where it can be searched for."""

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
    """Audit trail and watch feed: written in the transaction of the change it tells."""

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
    """Idempotency: which job a request id made, and from which body."""

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
    """A published artifact. Outlives its job."""

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

    # SQLite counts up by itself only an INTEGER key.
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
    """A piece of an attempt's log, by byte offset."""

    attempt_uid: Named[str] = Column(Text, ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    offset: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    data: Named[bytes] = Column(LargeBinary)


LOGS = Table(
    "logs",
    METADATA,
    LogColumns,
)


class CheckpointColumns(TypedColumns):
    """A committed checkpoint: whole in the store when it was committed."""

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


class TokenColumns(TypedColumns):
    """An API token. Its secret has 256 random bits, so a plain hash is enough."""

    token_id: Named[str] = Column(Text, primary_key=True)
    project: Named[str] = Column(Text)  # "-": an operator's, good for all
    display_name: Named[str] = Column(Text)
    scope: Named[str] = Column(Text)
    secret_sha256: Named[str] = Column(Text)
    creator: Named[str] = Column(Text)
    create_us: Named[int] = Column(BigInteger)
    expire_us: Named[int | None] = Column(BigInteger)
    revoke_us: Named[int | None] = Column(BigInteger)
    last_use_us: Named[int | None] = Column(BigInteger)


TOKENS = Table(
    "tokens",
    METADATA,
    TokenColumns,
    Index("uq_tokens_secret_sha256", "secret_sha256", unique=True),
    Index("ix_tokens_project_create_us", "project", "create_us", "token_id"),
)


class ProjectColumns(TypedColumns):
    """Quotas of a project, where they are not the server's defaults."""

    project: Named[str] = Column(Text, primary_key=True)
    max_queued_jobs: Named[int | None] = Column(BigInteger)
    max_running_gpus: Named[float | None] = Column(Double)


PROJECTS = Table(
    "projects",
    METADATA,
    ProjectColumns,
)


class InstallationColumns(TypedColumns):
    """What tells this database from all others, and from its own copies and backups. One row, made with the schema."""

    uid: Named[str] = Column(Text, primary_key=True)  # random: the same database, whatever its URL, key and home
    # Only grows. On SQLite it counts commits; everywhere it grows with each new mark in the store.
    generation: Named[int] = Column(BigInteger)
    # The tokens of the newest marks that this database wrote to its store. A copy that goes on by itself draws others.
    tokens: Named[list[str]] = Column(JSON)


INSTALLATION = Table(
    "installation",
    METADATA,
    InstallationColumns,
)


class QuarantineColumns(TypedColumns):
    """An object of the store that nothing refers to, from when it was first found so until it is deleted."""

    part: Named[str] = Column(Text, primary_key=True)  # of the store, as garbage collection divides it
    key: Named[str] = Column(Text, primary_key=True)
    modified_us: Named[int] = Column(BigInteger)  # by the store's clock; an upload since then starts the delay anew
    found_us: Named[int] = Column(BigInteger)


QUARANTINE = Table(
    "quarantine",
    METADATA,
    QuarantineColumns,
)
