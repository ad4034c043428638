"""Names of the metrics in manifests that are not of one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

ABOVE_CONSTANT = "above_constant"
"""By how much the primary metric is better than that of the best constant answer."""
LATENCY_RATIO = "latency_ratio"
"""Time of the same model, dense in torch (fp32) / time of the sparse one."""
LATENCY_MS = "latency_ms"
"""Time of the sparse model in milliseconds."""
DENSE_LATENCY_MS = "dense_latency_ms"
"""Time of the unpruned model in torch (fp32) in milliseconds."""
DENSE_INT8_LATENCY_MS = "dense_int8_latency_ms"
"""Time of the unpruned model in torch's dynamic int8 in milliseconds."""
INT8_LATENCY_RATIO = "int8_latency_ratio"
"""Time of the unpruned model in torch's dynamic int8 / time of the sparse one."""
TEST = "test"


class Names(NamedTuple):
    """What the names of the metrics on one set of examples begin with, as delta_low/accuracy.

    Attributes:
        own: those of the model.
        dense: those of the dense model.
        delta: own − dense.
        low, high: the 95 % confidence interval of the primary metric's difference, paired on the examples.
    """

    own: str
    dense: str
    delta: str
    low: str
    high: str


VALIDATION = Names("eval", "dense", "delta", "delta_low", "delta_high")
TESTED = Names(TEST, *(f"{TEST}_{name}" for name in VALIDATION[1:]))
"""Of examples that nothing was chosen by."""


def is_tested(metrics: Mapping[str, float]) -> bool:
    """Whether a model was measured on examples that nothing was chosen by."""
    return any(key.startswith(f"{TESTED.own}/") for key in metrics)


def measured(metrics: Mapping[str, float], primary: str = "") -> list[tuple[Names, str, str]]:
    """The metrics that a model has: for each the set of its examples, its name, and the name that says both. Those of
    the validation examples come first; among them the primary one, then by name."""
    found = []
    for names, where in ((VALIDATION, ""), (TESTED, " (test)")):
        own = [key.removeprefix(f"{names.own}/") for key in metrics if key.startswith(f"{names.own}/")]
        found += [(names, name, name + where) for name in sorted(own, key=lambda name: (name != primary, name))]
    return found


def bounds(metrics: Mapping[str, float], name: str, names: Names = VALIDATION) -> tuple[float, float] | None:
    """The interval of a metric's difference from the dense model; None where it is not known."""
    low, high = (metrics.get(f"{bound}/{name}") for bound in (names.low, names.high))
    return None if low is None or high is None else (low, high)


def bounds_text(
    metrics: Mapping[str, float], name: str, names: Names = VALIDATION, *, scale: float = 1.0, digits: int = 4
) -> str:
    """ " (-0.0214 to +0.0031)", to be put after the difference; "" where the interval is not known."""
    found = bounds(metrics, name, names)
    return "" if found is None else f" ({scale * found[0]:+.{digits}f} to {scale * found[1]:+.{digits}f})"
