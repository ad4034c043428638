"""What the statements return: one frozen type for each table, with the columns of models.py in their order.

Columns that hold messages are `bytes`: the caller parses the messages that it needs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import AttemptState, JobState
from mvprune_service.ids import AttemptName, JobName


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


class RequestRow(NamedTuple):
    """A row of `requests`."""

    project: str
    request_id: str
    body_sha256: str
    job_uid: str
    create_us: int


class ArtifactRow(NamedTuple):
    """A row of `artifacts`, and the id of its job unless the job was deleted."""

    project: str
    sha256: str
    job_uid: str | None
    attempt: int
    manifest_bytes: int
    manifest: dict[str, Any]
    create_us: int
    expire_us: int | None
    job_id: str | None


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


class LogChunkRow(NamedTuple):
    """A row of `log_chunks`."""

    attempt_uid: str
    offset: int
    size_bytes: int
    uid: str
    sha256: str
    stored_bytes: int
    create_us: int


class CheckpointRow(NamedTuple):
    """A row of `checkpoints`."""

    attempt_uid: str
    step: int
    job_uid: str
    manifest_sha256: str
    create_us: int


class TokenRow(NamedTuple):
    """A row of `tokens`."""

    token_id: str
    project: str
    display_name: str
    scope: str
    secret_sha256: str
    creator: str
    create_us: int
    expire_us: int | None
    revoke_us: int | None
    last_use_us: int | None


class ProjectRow(NamedTuple):
    """A row of `projects`."""

    project: str
    max_queued_jobs: int | None
    max_running_gpus: float | None
    max_upload_bytes: int | None
