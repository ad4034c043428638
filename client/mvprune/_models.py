"""What the client returns: frozen mirrors of the messages in proto/mvprune/v1.

Times are aware datetimes in UTC, durations are seconds, an unset message is None, an unset string is "".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar


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
class Dataset:
    """Data in place of the task's own: `hub_id`, or `train` and `validation`."""

    hub_id: str
    hub_config: str
    train: str
    validation: str
    text_column: str
    text_pair_column: str
    label_column: str


@dataclass(frozen=True)
class Teacher:
    """Distillation teacher: one of `model`, `job`, `train` and `none`, or the job's own dense baseline.

    Attributes:
        job: name of the job whose model it is.
        train: a dense model is trained for it.
        none: no distillation.
        temperature, alpha: None: the default.
        hidden_states: None: the default.
    """

    model: str
    job: str
    train: bool
    none: bool
    revision: str
    temperature: float | None
    alpha: float | None
    hidden_states: float | None


@dataclass(frozen=True)
class Training:
    """Fine-tuning settings; None, or "": the default."""

    max_steps: int | None
    epochs: float | None
    batch_size: int | None
    learning_rate: float | None
    weight_decay: float | None
    max_length: int | None
    accumulation_steps: int | None
    precision: str | None
    train_embeddings: bool | None
    compile: bool | None
    gradient_checkpointing: bool | None
    deterministic: bool | None
    evaluate_every: int | None
    patience: int | None
    keep_best: bool | None
    dropout: bool | None
    learning_rate_growth: float | None
    best_metric: str


@dataclass(frozen=True)
class Spec:
    """What to compress and how.

    Attributes:
        method: name of the method, e.g. "movement".
        method_options: the method's options that were set.
        target_density: fraction of the prunable weights that is kept, in (0, 1].
        include, exclude: patterns over names of modules; empty: what suits the model's family.
        values, embeddings: how the artifact stores the kept weights, and every other matrix; None: the default.
        trim_vocabulary: whether the artifact keeps the embeddings of those tokens alone that the data uses.
        delta: whether the artifact refers to the model for tensors that the task did not change.
    """

    model: str
    model_revision: str
    task: str
    dataset: Dataset | None
    method: str
    method_options: Mapping[str, float | str]
    target_density: float
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    allow_density_miss: bool
    teacher: Teacher | None
    seed: int
    training: Training
    values: str | None
    embeddings: str | None
    trim_vocabulary: bool
    delta: bool


@dataclass(frozen=True)
class Gate:
    """What a result must reach to be good enough, in the units of the contract; submit takes "f1>=80" for it too.

    Attributes:
        metric: eval/NAME, delta/NAME or dense/NAME of a metric of the task, a fraction; bytes, of the artifact;
            size_ratio, of the dense model to it; density; or latency_ratio, dense time to sparse time.
        min, max: the bound; one of them.
        fail_job: a job that misses it FAILS, and publishes nothing.
    """

    metric: str
    min: float | None = None
    max: float | None = None
    fail_job: bool = False


@dataclass(frozen=True)
class GateResult:
    """The outcome of one gate; `observed` is None where the result has no such metric: then it is not passed."""

    gate: Gate
    observed: float | None
    passed: bool


@dataclass(frozen=True)
class Policy:
    """How a job is run; durations are seconds, None: the server's default.

    Attributes:
        priority: -100 to 100; each point counts as ten minutes in the queue.
        max_runtime: of all attempts together; None: no limit.
        max_queue_time: in the queue at a stretch; None: no limit.
        allow_smaller_batch: whether batches are cut into more passes after OUT_OF_MEMORY.
        retention: from the end until the job and its artifact are deleted; None: never.
        gates: what the result must reach.
    """

    gpus: float | None
    cpus: float | None
    memory_bytes: int | None
    max_attempts: int
    start_timeout: float | None
    priority: int
    max_runtime: float | None
    max_queue_time: float | None
    allow_smaller_batch: bool
    retention: float | None
    checkpoint_interval: float | None
    gates: tuple[Gate, ...]


@dataclass(frozen=True)
class Progress:
    """Where a job is.

    Attributes:
        phase: loading, dense, pruning, evaluating or uploading.
        step: of the phase, out of `total_steps` (0: not known).
        density: fraction of the prunable weights kept now.
        eta: seconds left in the phase.
    """

    phase: str
    step: int
    total_steps: int
    density: float
    loss: float | None
    eta: float | None


@dataclass(frozen=True)
class ModelSize:
    """Parameters of the model to compress, without what depends on the task.

    Attributes:
        base_parameters: embeddings, blocks and norms: the model without pooler and task head.
        encoder_parameters: in the numbered blocks: weights, biases and norms.
        prunable_weights: the encoder's matrices.
    """

    base_parameters: int
    encoder_parameters: int
    prunable_weights: int


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
        notes: only as `submit` gives it: which columns of the data are read, and what was guessed, is replaced or looks
            wrong in it.
    """

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

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]

    @property
    def missed_gates(self) -> tuple[GateResult, ...]:
        """Those of `gate_results` that did not pass."""
        return tuple(result for result in self.gate_results if not result.passed)

    def __str__(self) -> str:
        """One line; `repr` has every field."""
        from mvprune import _display  # few need it

        return _display.line(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from mvprune import _display

        return _display.table(self)


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


@dataclass(frozen=True)
class Artifact:
    """A published, immutable set of files.

    Attributes:
        metrics: eval/…, dense/… and delta/… of every metric of the task.
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
