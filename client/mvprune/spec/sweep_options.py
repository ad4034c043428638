"""The options of `Client.sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from mvprune.spec.sweep_choices import (
    PolicyOptions,
    RandomStrategy,
    ResultOptions,
    SearchStrategy,
    TicketStrategy,
)


class CellOptions(TypedDict, total=False):
    """The axes and points of a sweep.

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
    """How a sweep looks for its result.

    Attributes:
        strategy: "grid", "search", "descent", "bisection", "tickets", a `RandomStrategy`, a `SearchStrategy` or a
            `TicketStrategy`; default: a search where no density is given, else a grid. "descent" and "bisection" are
            searches of this way.
        gates: what a recommended point must reach, such as "f1>=80" or "bytes<=10MB". No job fails because of them.
            Objectives name metrics as gates do; latency_ms, encoder_nonzero, kept_weights and sparse_flops are known
            too.
    """

    strategy: (
        Literal["grid", "search", "descent", "bisection", "tickets"]
        | RandomStrategy
        | SearchStrategy
        | TicketStrategy
        | None
    )
    gates: Sequence[str | Gate] | None


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
    ResultOptions,
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
