"""Names of the metrics in manifests that are not of one task."""

from __future__ import annotations

from collections.abc import Mapping

ABOVE_CONSTANT = "above_constant"
"""By how much the primary metric is better than that of the best constant answer."""
LATENCY_RATIO = "latency_ratio"
"""Time of the dense model / time of the sparse one."""
LATENCY_MS = "latency_ms"
"""Time of the sparse model in milliseconds."""
DELTA_LOW, DELTA_HIGH = "delta_low", "delta_high"
"""What the names of the bounds of a difference from the dense model begin with, as delta_low/accuracy: a confidence
interval of 95 % of the primary metric's, paired on the examples that both models were measured on."""


def bounds(metrics: Mapping[str, float], name: str) -> tuple[float, float] | None:
    """The interval of a metric's difference from the dense model; None where it is not known."""
    low, high = (metrics.get(f"{bound}/{name}") for bound in (DELTA_LOW, DELTA_HIGH))
    return None if low is None or high is None else (low, high)


def bounds_text(metrics: Mapping[str, float], name: str, *, scale: float = 1.0, digits: int = 4) -> str:
    """ " (-0.0214 to +0.0031)", to be put after the difference; "" where the interval is not known."""
    found = bounds(metrics, name)
    return "" if found is None else f" ({scale * found[0]:+.{digits}f} to {scale * found[1]:+.{digits}f})"
