"""Attempts, and what each reports: metrics, its log, checkpoints."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Named,
    Table,
    Text,
    TypedColumns,
    text,
)

from mvprune_service.db.tables.base import METADATA, Member
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import LIVE_ATTEMPTS, AttemptState
from mvprune_service.ids import AttemptName

_LIVE_SQL = ", ".join(f"'{state}'" for state in LIVE_ATTEMPTS)


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


class AttemptRow(NamedTuple):
    """A row of `attempts`."""

    uid: str
    job_uid: str
    number: int
    state: AttemptState
    fencing_token: int
    executor: str
    executor_ref: str
    cpus: float
    gpus: float
    memory_bytes: int
    runner_id: str | None
    node: str
    manifest_sha256: str | None
    failure_reason: FailureReason | None
    failure_message: str | None
    log_bytes: int
    create_us: int
    start_deadline_us: int
    start_us: int | None
    lease_expire_us: int | None
    heartbeat_us: int | None
    end_us: int | None
    parts: int


class Live(NamedTuple):
    """A live attempt with its job."""

    job: JobRow
    attempt: AttemptRow

    @property
    def name(self) -> AttemptName:
        """The attempt's resource name."""
        return AttemptName(self.job.project, self.job.job_id, self.attempt.number)


class ReservedRow(NamedTuple):
    """How many live attempts of a project have reserved the same resources."""

    project: str
    gpus: float
    cpus: float
    memory_bytes: int
    parts: int
    number: int


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


class MetricRow(NamedTuple):
    """A row of `metrics`."""

    id: int
    job_uid: str
    attempt_uid: str
    attempt: int
    metric: str
    step: int
    value: float
    time_us: int


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


class LogChunkRow(NamedTuple):
    """A row of `log_chunks`."""

    attempt_uid: str
    offset: int
    size_bytes: int
    uid: str
    sha256: str
    stored_bytes: int
    create_us: int


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


class CheckpointRow(NamedTuple):
    """A row of `checkpoints`."""

    attempt_uid: str
    step: int
    job_uid: str
    manifest_sha256: str
    create_us: int
