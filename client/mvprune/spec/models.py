"""The parts of a job's spec and policy as the client returns them: frozen mirrors of the messages in proto/mvprune/v1.

Durations are seconds, an unset message is None, an unset string is "".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
