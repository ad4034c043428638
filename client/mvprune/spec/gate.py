"""Gates, their results, as messages have them, and which values pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mvprune.common.metrics import ABOVE_CONSTANT, INT8_LATENCY_RATIO, LATENCY_RATIO

if TYPE_CHECKING:
    from mvprune.v1 import job_pb2

OF_LATENCY = (LATENCY_RATIO, INT8_LATENCY_RATIO)
"""What has to be measured for a gate on it."""
OF_THE_ARTIFACT = ("bytes", "size_ratio", "density", *OF_LATENCY, ABOVE_CONSTANT)  # beside metrics of the task

# A difference of two fractions is seldom exact: 0.85 - 0.87 is a little less than -0.02.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Gate:
    """A bound that a result must reach, in the units of the contract; submit takes "f1>=80" for it too.

    Attributes:
        metric: eval/NAME, delta/NAME or dense/NAME of a metric of the task, a fraction; bytes, of all files of the
            artifact; size_ratio, of the dense model to them; density; latency_ratio, dense time to sparse time;
            int8_latency_ratio, the unpruned model's time in torch's dynamic int8 to sparse time; or above_constant, the
            primary metric minus that of the best constant answer.
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


def gate_of(message: job_pb2.Gate) -> Gate:
    """A gate of the contract."""
    return Gate(
        metric=message.metric,
        min=message.min if message.HasField("min") else None,
        max=message.max if message.HasField("max") else None,
        fail_job=message.fail_job,
    )


def excess(gate: Gate, value: float) -> float:
    """By how much a value misses a gate, 0 or less if it passes. It is the difference where the bound is at most 1, and
    relative to the bound where it is larger, as for bytes."""
    bound = gate.min if gate.min is not None else gate.max or 0.0
    difference = bound - value if gate.min is not None else value - bound
    return difference / max(1.0, abs(bound))


def is_passed(gate: Gate, value: float | None) -> bool:
    """Whether a value passes a gate. A value that is not known does not."""
    return value is not None and excess(gate, value) <= _TOLERANCE


def size_ratio(accounting: Mapping[str, float], total_bytes: float) -> dict[str, float]:
    """size_ratio: the dense model's bytes to those of all files of the artifact. Empty where one is not known."""
    dense = accounting.get("dense_bytes")
    return {"size_ratio": dense / total_bytes} if dense and total_bytes else {}
