"""What the client returns about sweeps: frozen mirrors of the messages in proto/mvprune/v1/sweep.proto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from mvprune.client.models import Accounting, Failure, Progress
from mvprune.spec.gate import Gate
from mvprune.spec.models import Policy, Spec, SweepPolicy


class SweepState(StrEnum):
    """Lifecycle of a sweep. A state that this version does not know reads as UNSPECIFIED."""

    UNSPECIFIED = "UNSPECIFIED"
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_terminal(self) -> bool:
        """Whether the sweep has ended."""
        return self in (SweepState.SUCCEEDED, SweepState.FAILED, SweepState.CANCELLED)


class PointState(StrEnum):
    """State of a point. A state that this version does not know reads as UNSPECIFIED."""

    UNSPECIFIED = "UNSPECIFIED"
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    DELETED = "DELETED"


@dataclass(frozen=True)
class Axis:
    """One parameter of a sweep and its values; or, for a random sweep, the bounds of its values.

    Attributes:
        log: whether values between the bounds are uniform in the logarithm.
    """

    parameter: str
    values: tuple[Any, ...] = ()
    min: float | None = None
    max: float | None = None
    log: bool = False


@dataclass(frozen=True)
class Objective:
    """One thing to make large or small; `direction` is "maximize" or "minimize"."""

    metric: str
    direction: str


@dataclass(frozen=True)
class SweepSpec:
    """The spec of a sweep.

    Attributes:
        base, job_policy: what its jobs have in common.
        points: parameter to value of each point beside the product of the axes; with tickets, of each further task.
        exclude: points that have all of these values are left out.
        strategy: "grid", "random", "search" or "tickets".
        strategy_options: those that were given.
        max_loss: points of the task's primary metric that may be lost; None: it was not asked. One of `gates` says it.
        gates: what a recommended point must reach.
        seeds: "mean" or "worst": what is compared with the gates.
    """

    base: Spec
    job_policy: Policy
    axes: tuple[Axis, ...]
    points: tuple[Mapping[str, Any], ...]
    exclude: tuple[Mapping[str, Any], ...]
    strategy: str
    strategy_options: Mapping[str, Any]
    objectives: tuple[Objective, ...]
    gates: tuple[Gate, ...]
    seeds: str
    max_loss: float | None = None


@dataclass(frozen=True)
class SweepCounts:
    """How many points are in each state; `reused`: of those that succeeded; `baselines`: dense jobs that they share."""

    total: int
    pending: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    deleted: int
    reused: int
    baselines: int


@dataclass(frozen=True)
class Recommendation:
    """The point that the results recommend.

    Attributes:
        passed: whether it passes all gates; if not, it is the closest miss.
        point: its number; of several seeds, the best one.
        points: the numbers of all seeds of the cell.
        text: the same in words.
    """

    passed: bool
    point: int
    points: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class SweepCost:
    """The cost of a sweep: seconds of all attempts, GPU hours, the part of the shared baselines, and the seconds that
    sharing them saved at most: jobs on one machine would have shared its cache of dense models."""

    runtime: float | None
    gpu_hours: float
    baseline_runtime: float | None
    saved_runtime: float | None


@dataclass(frozen=True)
class SweepEstimate:
    """The estimate of a sweep; `runtime` in seconds, None if no job like its jobs was measured."""

    jobs: int
    baselines: int
    runtime: float | None
    gpu_hours: float
    measured_jobs: int
    text: str


@dataclass(frozen=True)
class SweepRecord:
    """A sweep, as it was when the server answered.

    Attributes:
        recommendation: None until a point has a result.
        estimate: only in the answer of a validation.
        notes: what was replaced or left out, and what the readers of the data report.
    """

    name: str
    uid: str
    display_name: str
    spec: SweepSpec
    policy: SweepPolicy
    labels: Mapping[str, str]
    state: SweepState
    state_reason: str
    counts: SweepCounts
    recommendation: Recommendation | None
    cost: SweepCost
    estimate: SweepEstimate | None
    creator: str
    create_time: datetime | None
    end_time: datetime | None
    update_time: datetime | None
    etag: str
    notes: tuple[str, ...]

    @property
    def id(self) -> str:
        """The last part of the name."""
        return self.name.rpartition("/")[2]


@dataclass(frozen=True)
class SweepPoint:
    """One cell of a sweep, and its job.

    Attributes:
        cell: parameter to value; with tickets also `run`, dense, ticket, transfer or a control, and `mask_task`, the
            task of a mask that is trained on another one.
        state_reason: of the job; or why there is none.
        job: its name; the job may be deleted by now.
        metrics: eval/…, dense/…, delta/…, delta_low/…, delta_high/…, as of a job's artifact.
        accounting: None until there is a result.
        runtime: seconds of all attempts.
        optimal: whether no other point is better in all objectives.
        method, target_density, seed, model, task: of the job's spec.
    """

    number: int
    cell: Mapping[str, Any]
    state: PointState
    state_reason: str
    job: str
    reused: bool
    artifact: str
    metrics: Mapping[str, float]
    primary_metric: str
    accounting: Accounting | None
    total_bytes: int
    failure: Failure | None
    runtime: float | None
    gpu_hours: float
    progress: Progress | None
    optimal: bool
    method: str
    target_density: float
    seed: int
    model: str
    task: str


@dataclass(frozen=True)
class SweepEvent:
    """One entry of a sweep's audit trail; `sequence` counts from 1 without gaps."""

    sequence: int
    time: datetime | None
    type: str
    actor: str
    details: Mapping[str, str]
