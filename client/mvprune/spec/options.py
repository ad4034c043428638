"""The options of `submit`, grouped by the message that they go into; most have the name of its field.

An option to come is a line in one of these classes: the client, the request and the reference read them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol, TypedDict, runtime_checkable

from mvprune.spec.models import Gate


@runtime_checkable
class NamedJob(Protocol):
    """A job, such as `Client.get` returns."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class SpecOptions(TypedDict, total=False):
    """What is pruned, and how.

    Attributes:
        task: sst2, mrpc, squad, …; text-classification if data of your own is given and no task.
        method: how weights are chosen: soft_movement (default), movement, l0, magnitude, one_shot_magnitude or random.
        model_revision: on the hub; default: its default branch.
        include, exclude: patterns over names of modules, such as "*.attention.*": what is pruned, and what is not.
        allow_density_miss: a result that misses its density by more than 10 % is a result all the same.
        seed: of everything random; default 0.
        values, embeddings: how the artifact stores the kept weights, and every other matrix (the embeddings above
            all): fp16 (default), bf16, fp32 or int8; metrics are those of what is stored.
        trim_vocabulary: the artifact keeps the embeddings of those tokens alone that the data uses.
        delta: the artifact refers to the model for tensors that the task did not change, and needs it when loaded.
    """

    task: str
    method: str
    model_revision: str
    include: Sequence[str]
    exclude: Sequence[str]
    allow_density_miss: bool
    seed: int
    values: str | None
    embeddings: str | None
    trim_vocabulary: bool
    delta: bool


class MethodOptions(TypedDict, total=False):
    """Options of the method, each for those that have it.

    Attributes:
        warmup, cooldown: fractions of all steps, before pruning begins and at the final density.
        shape: of the way between: cubic, linear or one_shot.
        selection: local, in each matrix, or global, in all together.
        score_learning_rate: of the scores.
        initial_scores: zero or magnitude.
        penalty: on the scores.
        when: before or after training.
    """

    warmup: float | None
    cooldown: float | None
    shape: str | None
    selection: str | None
    score_learning_rate: float | None
    initial_scores: str | None
    penalty: float | None
    when: str | None


class DatasetOptions(TypedDict, total=False):
    """Data in place of the task's.

    Attributes:
        train, validation: your own files (csv, tsv, jsonl, parquet; by task SQuAD's JSON, CoNLL, lines of text).
        dataset, dataset_config: a data set on the hub instead, e.g. stanfordnlp/imdb.
        text_column, text_pair_column, label_column: its columns, where their names do not tell.
    """

    train: str | os.PathLike[str]
    validation: str | os.PathLike[str]
    dataset: str
    dataset_config: str
    text_column: str
    text_pair_column: str
    label_column: str


class TeacherOptions(TypedDict, total=False):
    """Distillation.

    Attributes:
        teacher: distil from this: a model, a job (or "job:ID"), "train" for a dense model that is trained first, once
            for all jobs that can share it, or "none"; by default the job's own dense baseline.
        teacher_revision: on the hub.
        temperature, alpha: alpha is the teacher's part of the loss.
        hidden_states: how much the difference from the teacher's hidden states counts beside that; by default 1 in runs
            of five passes over the data or more where the job's own baseline teaches, else 0.
    """

    teacher: str | os.PathLike[str] | NamedJob
    teacher_revision: str
    temperature: float | None
    alpha: float | None
    hidden_states: float | None


class TrainingOptions(TypedDict, total=False):
    """Fine-tuning.

    Attributes:
        max_steps, epochs: length of the training; one of them.
        max_length: tokens; longer inputs are cut.
        accumulation_steps: passes that a batch is cut into.
        precision: fp32 or bf16.
        evaluate_every: steps; what patience and keep_best need.
        patience: evaluations without a better one, at the final density, after which it stops.
        keep_best: the best evaluated model is the result.
        best_metric: what patience and keep_best go by; by default the task's primary metric.
        learning_rate_growth: x: at a density of v the pruned matrices learn at learning_rate · v^(-x).
    """

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
    best_metric: str
    dropout: bool | None
    learning_rate_growth: float | None


class ResourceOptions(TypedDict, total=False):
    """Resources of one attempt."""

    gpus: float | None
    cpus: float | None
    memory_bytes: int | None


class PolicyOptions(TypedDict, total=False):
    """How the job is run; durations are seconds.

    Attributes:
        max_attempts: attempts, where machines fail.
        priority: -100 to 100; each point counts as ten minutes in the queue.
        max_runtime, max_queue_time: seconds that it may run in all, and wait at a stretch, before it FAILS.
        start_timeout, checkpoint_interval: seconds that an attempt may take to start; between checkpoints.
        retention: seconds from its end until the job, its logs and its artifact are deleted.
        allow_smaller_batch: after OUT_OF_MEMORY, try again with batches cut into more passes.
        gates: what the result must reach, such as "f1>=80", "delta_f1>=-2" (percent), "bytes<=10MB", "size_ratio>=20",
            "density<=0.03", "latency_ratio>=2": the outcome is in the job's gate_results.
        strict_gates: a job that misses one of them FAILS, and publishes nothing.
    """

    max_attempts: int | None
    priority: int | None
    max_runtime: float | None
    max_queue_time: float | None
    start_timeout: float | None
    checkpoint_interval: float | None
    retention: float | None
    allow_smaller_batch: bool | None
    gates: Sequence[str | Gate]
    strict_gates: bool


class RequestOptions(TypedDict, total=False):
    """The job itself, and this call.

    Attributes:
        display_name: a name for people.
        labels: to find it again.
        request_id: a repeated call with the same id and content returns the same job, until that is deleted; default: a
            new one.
        run_id: in place of a request_id: the same call in the same run (of a CI system, say) returns the same job.
        validate_only: check and fill in, start nothing.
    """

    display_name: str
    labels: Mapping[str, str] | None
    request_id: str
    run_id: str
    validate_only: bool


class SubmitOptions(
    SpecOptions,
    MethodOptions,
    DatasetOptions,
    TeacherOptions,
    TrainingOptions,
    ResourceOptions,
    PolicyOptions,
    RequestOptions,
    total=False,
):
    """The options of `Client.submit` beside `model` and `density`. What is left out, or None, has the server's
    default."""
