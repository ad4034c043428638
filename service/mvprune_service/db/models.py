"""The schema. Times are microseconds since the epoch; protobuf messages are stored serialized."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, CheckConstraint, ForeignKey, Index, Integer, LargeBinary, MetaData, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL

_TERMINAL_SQL = ", ".join(f"'{state}'" for state in sorted(TERMINAL))
_LIVE_SQL = ", ".join(f"'{state}'" for state in LIVE_ATTEMPTS)


class Base(DeclarativeBase):
    """All constraints have predictable names, so that migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Text, int: BigInteger, bytes: LargeBinary, dict[str, Any]: JSON, dict[str, str]: JSON}  # noqa: RUF012


class JobRow(Base):
    """One compression job."""

    __tablename__ = "jobs"
    __table_args__ = (
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
        Index("uq_jobs_project_teaches", "project", "teaches", unique=True),
        CheckConstraint(f"(end_us IS NOT NULL) = (state IN ({_TERMINAL_SQL}))", name="end_in_terminal"),
    )

    uid: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str]
    job_id: Mapped[str]
    display_name: Mapped[str]
    spec: Mapped[bytes]  # CompressionSpec
    policy: Mapped[bytes]  # ExecutionPolicy
    labels: Mapped[dict[str, str]]
    model_size: Mapped[bytes | None]  # ModelSize
    creator: Mapped[str]
    task: Mapped[str]  # of the spec, as are these two: what lists are filtered and ordered by
    model: Mapped[str]
    method: Mapped[str]
    priority: Mapped[int]

    teacher_uid: Mapped[str | None]  # the job whose model this one learns from; it may be deleted
    teacher_sha256: Mapped[str | None]  # that job's artifact, once there is one: until then this job waits
    # What a teacher that was trained on request is trained on, as a digest: the one that others may share has it.
    teaches: Mapped[str | None]

    state: Mapped[str]
    state_reason: Mapped[str]
    progress: Mapped[bytes | None]  # Progress
    failure_reason: Mapped[str | None]
    failure_message: Mapped[str | None]
    artifact_sha256: Mapped[str | None]
    metrics: Mapped[dict[str, Any]]

    attempt: Mapped[int]  # number of the newest attempt, 0 before the first
    attempts_left: Mapped[int]
    # Names the one lease that may report. Grows whenever an attempt begins or ends, so a stale token matches nothing.
    fencing_token: Mapped[int]
    not_before_us: Mapped[int]  # back-off
    # The queue's order. Waiting makes all jobs older alike, so ageing never changes who is first: priority is a head
    # start in time, given once.
    rank_us: Mapped[int]
    queue_deadline_us: Mapped[int | None]  # where it is QUEUED and may not wait for ever
    ran_us: Mapped[int]  # RUNNING, in attempts that have ended
    accumulation_factor: Mapped[int]  # doubled when memory runs out and that is allowed
    cancel_reason: Mapped[str | None]
    cancel_grace_us: Mapped[int | None]
    cancel_us: Mapped[int | None]

    create_us: Mapped[int]
    start_us: Mapped[int | None]
    end_us: Mapped[int | None]
    expire_us: Mapped[int | None]  # from its end on, where it has a retention: then it and its artifact are deleted
    update_us: Mapped[int]
    version: Mapped[int]  # the etag
    last_sequence: Mapped[int]  # of its events


class LabelRow(Base):
    """A label of a job, where it can be searched for."""

    __tablename__ = "labels"
    __table_args__ = (Index("ix_labels_project_key_value", "project", "key", "value", "job_uid"),)

    job_uid: Mapped[str] = mapped_column(ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    project: Mapped[str]


class AttemptRow(Base):
    """One execution of a job."""

    __tablename__ = "attempts"
    __table_args__ = (
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

    uid: Mapped[str] = mapped_column(primary_key=True)
    job_uid: Mapped[str] = mapped_column(ForeignKey("jobs.uid", ondelete="CASCADE"))
    number: Mapped[int]
    state: Mapped[str]
    fencing_token: Mapped[int]
    executor: Mapped[str]
    executor_ref: Mapped[str]
    cpus: Mapped[float]
    gpus: Mapped[float]
    memory_bytes: Mapped[int]
    runner_id: Mapped[str | None]
    node: Mapped[str]
    manifest_sha256: Mapped[str | None]
    failure_reason: Mapped[str | None]
    failure_message: Mapped[str | None]
    log_bytes: Mapped[int]
    create_us: Mapped[int]
    start_deadline_us: Mapped[int]
    start_us: Mapped[int | None]
    lease_expire_us: Mapped[int | None]
    heartbeat_us: Mapped[int | None]
    end_us: Mapped[int | None]


class EventRow(Base):
    """Audit trail and watch feed: written in the transaction of the change it tells."""

    __tablename__ = "events"

    job_uid: Mapped[str] = mapped_column(ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    time_us: Mapped[int]
    type: Mapped[str]
    actor: Mapped[str]
    from_state: Mapped[str | None]
    to_state: Mapped[str | None]
    details: Mapped[dict[str, str]]


class RequestRow(Base):
    """Idempotency: which job a request id made, and from which body."""

    __tablename__ = "requests"
    __table_args__ = (Index("ix_requests_create_us", "create_us"),)

    project: Mapped[str] = mapped_column(primary_key=True)
    request_id: Mapped[str] = mapped_column(primary_key=True)
    body_sha256: Mapped[str]
    job_uid: Mapped[str] = mapped_column(ForeignKey("jobs.uid", ondelete="CASCADE"), index=True)
    create_us: Mapped[int]


class ArtifactRow(Base):
    """A published artifact. Outlives its job."""

    __tablename__ = "artifacts"
    __table_args__ = (
        Index("ix_artifacts_project_create_us", "project", "create_us", "sha256"),
        Index("ix_artifacts_expire_us", "expire_us"),
    )

    project: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(primary_key=True)
    job_uid: Mapped[str | None] = mapped_column(ForeignKey("jobs.uid", ondelete="SET NULL"), index=True)
    attempt: Mapped[int]
    manifest_bytes: Mapped[int]
    manifest: Mapped[dict[str, Any]]
    create_us: Mapped[int]
    expire_us: Mapped[int | None]


class MetricRow(Base):
    """One recorded value; `id` is the order of arrival."""

    __tablename__ = "metrics"
    __table_args__ = (Index("uq_metrics_attempt_uid_metric_step", "attempt_uid", "metric", "step", unique=True),)

    # SQLite counts up by itself only an INTEGER key.
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True)
    job_uid: Mapped[str] = mapped_column(ForeignKey("jobs.uid", ondelete="CASCADE"), index=True)
    attempt_uid: Mapped[str] = mapped_column(ForeignKey("attempts.uid", ondelete="CASCADE"))
    attempt: Mapped[int]
    metric: Mapped[str]
    step: Mapped[int]
    value: Mapped[float]
    time_us: Mapped[int]


class LogRow(Base):
    """A piece of an attempt's log, by byte offset."""

    __tablename__ = "logs"

    attempt_uid: Mapped[str] = mapped_column(ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    offset: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    data: Mapped[bytes]


class CheckpointRow(Base):
    """A committed checkpoint: whole in the store when it was committed."""

    __tablename__ = "checkpoints"

    attempt_uid: Mapped[str] = mapped_column(ForeignKey("attempts.uid", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_uid: Mapped[str] = mapped_column(ForeignKey("jobs.uid", ondelete="CASCADE"), index=True)
    manifest_sha256: Mapped[str]
    create_us: Mapped[int]


class TokenRow(Base):
    """An API token. Its secret has 256 random bits, so a plain hash is enough."""

    __tablename__ = "tokens"
    __table_args__ = (
        Index("uq_tokens_secret_sha256", "secret_sha256", unique=True),
        Index("ix_tokens_project_create_us", "project", "create_us", "token_id"),
    )

    token_id: Mapped[str] = mapped_column(primary_key=True)
    project: Mapped[str]  # "-": an operator's, good for all
    display_name: Mapped[str]
    scope: Mapped[str]
    secret_sha256: Mapped[str]
    creator: Mapped[str]
    create_us: Mapped[int]
    expire_us: Mapped[int | None]
    revoke_us: Mapped[int | None]
    last_use_us: Mapped[int | None]


class ProjectRow(Base):
    """Quotas of a project, where they are not the server's defaults."""

    __tablename__ = "projects"

    project: Mapped[str] = mapped_column(primary_key=True)
    max_queued_jobs: Mapped[int | None]
    max_running_gpus: Mapped[float | None]
