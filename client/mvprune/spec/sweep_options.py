"""The options of `Client.sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from mvprune.spec.call_options import CallOptions
from mvprune.spec.gate import Gate
from mvprune.spec.options import (
    ArtifactOptions,
    DataOptions,
    DistillationOptions,
    JobOptions,
    LimitsOptions,
    MethodOptions,
    ModelOptions,
    ResourcesOptions,
    TrainingOptions,
)


@dataclass(frozen=True)
class RandomStrategy:
    """Combinations of the axes that are drawn at random, none twice.

    Attributes:
        points: how many.
        seed: of the drawing.
    """

    points: int
    seed: int = 0


@dataclass(frozen=True)
class SearchStrategy:
    """Bisection over the density: the smallest one whose result passes all gates, for each combination of the axes.

    Attributes:
        goal: what is small in the recommended point: "density", "bytes" or "latency".
        min_density: the smallest density of the search; default: 0.01.
        max_density: the largest density of the search; default: 0.5.
        tolerance: neighbouring densities differ by at most this fraction; default: 0.15.
        seeds: jobs for each density, with the seeds from `seed` on.
    """

    goal: Literal["density", "bytes", "latency"] = "density"
    min_density: float | None = None
    max_density: float | None = None
    tolerance: float | None = None
    seeds: int = 1


@dataclass(frozen=True)
class TicketStrategy:
    """Lottery tickets: rounds of magnitude pruning, each on the original weights, with controls and transfer.

    The axes are "task", "density" and "seed". Each of `points` is one more task, with its own data and training. Of
    the options of methods, only `rewind` may be given.

    Attributes:
        step: fraction of the original weights that a round prunes; default: 0.1.
        controls: of "random_mask", "random", "shuffled" and "shuffled_layers"; default: all; ("none",): no control.
        table_tasks: tasks whose tickets and controls are compared; default: all.
        transfer_density: density of masks that are trained on other tasks; default: none is.
        transfer_sources: tasks that these masks are found on; default: all.
        transfer_targets: tasks that they are trained on; default: all.
    """

    step: float | None = None
    controls: Sequence[Literal["random_mask", "random", "shuffled", "shuffled_layers", "none"]] = ()
    table_tasks: Sequence[str] = ()
    transfer_density: float | None = None
    transfer_sources: Sequence[str] = ()
    transfer_targets: Sequence[str] = ()


class CellOptions(TypedDict, total=False):
    """What the jobs of a sweep differ in.

    Attributes:
        axes: parameter to its values. The jobs are all combinations; the first axis is the slowest. None as a value
            leaves the parameter unset. In a random sweep, {"min": 1e-5, "max": 1e-4, "log": True} in place of values
            is a range of numbers, uniform in the logarithm.
        points: jobs beside the combinations, each as parameter to value.
        without: combinations that have all of these values are left out; each as parameter to value.
    """

    axes: Mapping[str, Sequence[Any] | Mapping[str, Any]] | None
    points: Sequence[Mapping[str, Any]] | None
    without: Sequence[Mapping[str, Any]] | None


class ChoiceOptions(TypedDict, total=False):
    """How a sweep looks for its result, and what it recommends.

    Attributes:
        strategy: "grid", "search", "tickets", a `RandomStrategy`, a `SearchStrategy` or a `TicketStrategy`; default: a
            search where no density is given, else a grid.
        max_loss: points of the task's primary metric that may be lost: 1.0 is the gate "delta_METRIC>=-1".
        gates: what a recommended point must reach, such as "f1>=80" or "bytes<=10MB". No job fails because of them.
        objectives: what to make large or small, the most important first, such as "max accuracy" or "min bytes".
            Metrics are named as in gates; latency_ms, encoder_nonzero, kept_weights and sparse_flops are known too.
            Default: the most of the task's primary metric, the fewest bytes.
        seed_policy: "mean" or "worst": what is compared with the gates where the seeds differ; default: "mean".
    """

    strategy: Literal["grid", "search", "tickets"] | RandomStrategy | SearchStrategy | TicketStrategy | None
    max_loss: float | None
    gates: Sequence[str | Gate] | None
    objectives: Sequence[str] | None
    seed_policy: Literal["mean", "worst"] | None


class PolicyOptions(TypedDict, total=False):
    """How a sweep is run.

    Attributes:
        parallel: jobs at a time; default: 4.
        max_failed: points that may fail; default: any number.
        on_failure: what becomes of the other jobs when too many have failed: "let_run" or "stop" (they are cancelled);
            default: "let_run".
        max_runtime: seconds from the sweep's creation, its last retry, or an extension after its end, after which no
            job is created; default: no limit.
        max_gpu_hours: GPU hours of all attempts, after which no job is created; default: no limit.
        reuse: take the results of jobs of the project with the same spec, where files and code are the same; default:
            no.
        early_stop: cancel jobs that cannot become the best of their density any more; default: no.
        own_baselines: each job trains its own dense baseline, in place of sharing one; default: no.
    """

    parallel: int | None
    max_failed: int | None
    on_failure: Literal["let_run", "stop"] | None
    max_runtime: float | None
    max_gpu_hours: float | None
    reuse: bool | None
    early_stop: bool | None
    own_baselines: bool | None


class NamedSweepOptions(TypedDict, total=False):
    """The sweep.

    Attributes:
        policy: how it is run: see `PolicyOptions`.
        sweep_id: its id, at most 50 characters; default: one is made.
    """

    policy: PolicyOptions | None
    sweep_id: str | None


class SweepOptions(
    CellOptions,
    ChoiceOptions,
    NamedSweepOptions,
    ModelOptions,
    DataOptions,
    MethodOptions,
    ArtifactOptions,
    DistillationOptions,
    TrainingOptions,
    ResourcesOptions,
    LimitsOptions,
    JobOptions,
    CallOptions,
    total=False,
):
    """The options of `Client.sweep` beside `model` and `density`; None, or an option left out, is the default."""
