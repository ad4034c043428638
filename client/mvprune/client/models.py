"""Results of the client: frozen mirrors of the messages in proto/mvprune/v1.

Times are aware datetimes in UTC, durations are seconds, an unset message is None, an unset string is "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypedDict, TypeVar

from mvprune.sources.known_models import ModelSize
from mvprune.spec.gate import GateResult
from mvprune.spec.models import Policy, Spec


class JobState(StrEnum):
    """Lifecycle of a job. A state that this version does not know reads as UNSPECIFIED."""

    UNSPECIFIED = "UNSPECIFIED"
    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FINALIZING = "FINALIZING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


class AttemptState(StrEnum):
    """Lifecycle of an attempt. A state that this version does not know reads as UNSPECIFIED."""

    UNSPECIFIED = "UNSPECIFIED"
    CREATED = "CREATED"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LOST = "LOST"


@dataclass(frozen=True)
class Progress:
    """Where a job is.

    Attributes:
        phase: loading, dense, evaluating, writing, teaching, pruning, sampling, scoring or uploading.
        step: of the phase, out of `total_steps` (0: not known).
        density: fraction of the prunable weights kept now.
        eta: seconds to the end of the job, without the upload; early stopping may end it sooner.
    """

    phase: str
    step: int
    total_steps: int
    density: float
    loss: float | None
    eta: float | None


@dataclass(frozen=True)
class PlannedPhase:
    """A phase of a job that was not started yet. Numbers that only the worker knows are 0.

    Attributes:
        name: dense, evaluating, writing, teaching, pruning or uploading, as in `Progress`.
        steps: of a training.
        examples: that the model reads, in a training in all steps together.
        evaluations: between the steps of a training.
    """

    name: str
    steps: int
    examples: int
    evaluations: int


@dataclass(frozen=True)
class JobEstimate:
    """The phases of a job and their time, as far as it is known before it runs.

    Attributes:
        phases: in order. A dense model that is fine-tuned for the task already is not trained.
        epochs: of each training: passes over the data if the steps are not known, else 0. Those of a preset may be
            more if there are few examples.
        runtime: seconds of work; None if they are not known.
        text: the time in words, and what it was measured on.
    """

    phases: tuple[PlannedPhase, ...]
    epochs: float
    runtime: float | None
    text: str


@dataclass(frozen=True)
class Failure:
    """Why the work failed: a reason in UPPER_SNAKE_CASE and a sentence."""

    reason: str
    message: str


@dataclass(frozen=True)
class JobRecord:
    """A compression job, as it was when the server answered: what `Job` and `AsyncJob` have in common.

    Attributes:
        creator: who submitted it: the id of an API token, or "local".
        gate_results: the outcome of each of `policy.gates`, once they are evaluated.
        expire_time: when it is deleted; None while it goes on, and where it is kept.
        notes: as `submit` gives it: which columns of the data are read, and what was guessed, is replaced or looks
            wrong; once it has SUCCEEDED: the notes of its result.
        sweep: the name of the sweep that created it; "" if none did.
        primary_metric: the name of the task's metric without prefix, e.g. "accuracy"; set when the job has SUCCEEDED.
        estimate: only as `submit` gives it.
    """

    COMPUTED = ("metric", "difference", "duration")  # properties that JSON output has beside the fields

    name: str
    uid: str
    display_name: str
    spec: Spec
    policy: Policy
    labels: Mapping[str, str]
    state: JobState
    state_reason: str
    progress: Progress | None
    attempt: int
    model_size: ModelSize | None
    artifact: str
    failure: Failure | None
    metrics: Mapping[str, float]
    creator: str
    gate_results: tuple[GateResult, ...]
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    update_time: datetime | None
    etag: str
    expire_time: datetime | None
    notes: tuple[str, ...]
    sweep: str
    primary_metric: str
    estimate: JobEstimate | None
    note: str

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def metric(self) -> float | None:
        """The final value of the primary metric, a fraction: `metrics["eval/NAME"]`. None unless SUCCEEDED."""
        return self.metrics.get(f"eval/{self.primary_metric}")

    @property
    def difference(self) -> float | None:
        """The primary metric of the pruned model minus that of the dense one: `metrics["delta/NAME"]`."""
        return self.metrics.get(f"delta/{self.primary_metric}")

    @property
    def duration(self) -> float | None:
        """Seconds from `start_time` to `end_time`. None before the job has ended, and if it never started."""
        if self.start_time is None or self.end_time is None:
            return None
        return (self.end_time - self.start_time).total_seconds()

    @property
    def missed_gates(self) -> tuple[GateResult, ...]:
        """Those of `gate_results` that did not pass."""
        return tuple(result for result in self.gate_results if not result.passed)

    def __str__(self) -> str:
        """One line; `repr` has every field."""
        from mvprune.client import display  # few need it

        return display.line(self)

    def _repr_html_(self) -> str:
        """The HTML for a notebook."""
        from mvprune.client import display

        return display.table(self)


class JobChange(TypedDict, total=False):
    """A change of what people call a job and write about it; see `Client.update`."""

    display_name: str  # "" removes it
    set_labels: Mapping[str, str]  # are added, or get another value
    remove_labels: Sequence[str]  # keys; the job need not have them
    note: str  # at most 4,000 characters, in several lines if need be; "" removes it
    comment: str  # is added to the job's events


AnyJob = TypeVar("AnyJob", bound=JobRecord)


@dataclass(frozen=True)
class JobEvent:
    """One entry of a job's audit trail; `sequence` counts from 1 without gaps."""

    sequence: int
    time: datetime | None
    type: str
    actor: str
    from_state: JobState
    to_state: JobState
    details: Mapping[str, str]


@dataclass(frozen=True)
class JobUpdate(Generic[AnyJob]):
    """A job at the event `sequence`, with the events since the update before."""

    sequence: int
    job: AnyJob
    events: tuple[JobEvent, ...]
    done: bool


@dataclass(frozen=True)
class ProjectUpdate(Generic[AnyJob]):
    """Changes of a project's jobs.

    Attributes:
        jobs: have changed.
        removed: names of jobs that were deleted, or have changed and do not match the filter.
        missed: other jobs may have changed too: list them again.
    """

    jobs: tuple[AnyJob, ...]
    removed: tuple[str, ...]
    missed: bool


@dataclass(frozen=True)
class QueueEntry:
    """A queued job. `ahead` counts the jobs of all projects before it that could start. Resources are those of each of
    its workers; None: not chosen yet."""

    job: str
    display_name: str
    ahead: int
    state_reason: str
    priority: int
    gpus: float | None
    cpus: float | None
    memory_bytes: int | None
    workers: int | None
    create_time: datetime | None


@dataclass(frozen=True)
class Capacity:
    """What the executor's nodes have, and what is reserved for attempts."""

    cpus: float
    gpus: float
    memory_bytes: int
    reserved_cpus: float
    reserved_gpus: float
    reserved_memory_bytes: int


@dataclass(frozen=True)
class Queue:
    """The queue, which all projects share, as one of them sees it."""

    entries: tuple[QueueEntry, ...]
    queued_jobs: int  # of all projects, as running_jobs
    running_jobs: int
    capacity: Capacity | None  # None: the executor cannot be reached


@dataclass(frozen=True)
class LogLine:
    """A line of a log.

    Attributes:
        offset: of its first byte in the log.
        time: that it begins with; None: it has none.
    """

    offset: int
    text: str
    time: datetime | None


@dataclass(frozen=True)
class Attempt:
    """One execution of a job on a worker."""

    name: str
    state: AttemptState
    executor_ref: str
    node: str
    failure: Failure | None
    create_time: datetime | None
    start_time: datetime | None
    end_time: datetime | None
    last_heartbeat_time: datetime | None


@dataclass(frozen=True)
class MetricPoint:
    """One recorded value."""

    metric: str
    step: int
    value: float
    time: datetime | None
    attempt: int


@dataclass(frozen=True)
class ArtifactFile:
    """One file of an artifact; `path` is relative and '/'-separated."""

    path: str
    size_bytes: int
    sha256: str
    media_type: str


@dataclass(frozen=True)
class Accounting:
    """Exact counts of a compressed model.

    Attributes:
        density: kept_weights / prunable_weights.
        encoder_nonzero: kept weights plus biases and norms of the encoder.
        dense_bytes: all parameters in fp32.
        sparse_bytes: the weights file of the artifact.
        encoder_bytes, embedding_bytes: what the encoder and the embeddings take of it.
        dense_flops: operations of a forward pass over one input of the job's max_length; 0: not counted.
        sparse_flops: those without pruned weights.
    """

    target_density: float
    density: float
    prunable_weights: int
    kept_weights: int
    encoder_parameters: int
    encoder_nonzero: int
    total_parameters: int
    total_nonzero: int
    dense_bytes: int
    sparse_bytes: int
    encoder_bytes: int
    embedding_bytes: int
    dense_flops: int
    sparse_flops: int


@dataclass(frozen=True)
class Artifact:
    """A published, immutable set of files.

    Attributes:
        metrics: eval/…, dense/… and delta/… of every metric of the task; delta_low/… and delta_high/…, the 95 %
            confidence interval of the difference, of the primary one.
        primary_metric: the metric's name without prefix, e.g. "accuracy".
        expire_time: when it is deleted; None: it is kept.
    """

    name: str
    job: str
    attempt: int
    files: tuple[ArtifactFile, ...]
    total_bytes: int
    metrics: Mapping[str, float]
    primary_metric: str
    accounting: Accounting
    create_time: datetime | None
    expire_time: datetime | None

    @property
    def sha256(self) -> str:
        """The artifact's identity: SHA-256 of its manifest.json, in hex."""
        return self.name.rpartition("/")[2]
