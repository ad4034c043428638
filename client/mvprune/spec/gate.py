"""Gates and their results, as messages have them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gate:
    """What a result must reach to be good enough, in the units of the contract; submit takes "f1>=80" for it too.

    Attributes:
        metric: eval/NAME, delta/NAME or dense/NAME of a metric of the task, a fraction; bytes, of the artifact;
            size_ratio, of the dense model to it; density; or latency_ratio, dense time to sparse time.
        min, max: the bound; one of them.
        fail_job: a job that misses it FAILS and publishes nothing.
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
