"""The quantities of a report: the metric of a task, and five measures of a model's cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mvprune.client.sweep_models import SweepPoint
from mvprune.common.units import percent
from mvprune.data.tasks import LOSSES
from mvprune.sweep.verdict import outcome

DIFFERENCE = "difference"
"""The name of the difference from dense among the values of a result."""


@dataclass(frozen=True)
class Stat:
    """A value over seeds: its mean, its sample standard deviation (None for one seed), and the number of seeds."""

    mean: float
    deviation: float | None
    n: int

    @property
    def variance_of_mean(self) -> float | None:
        """The square of the standard error, None for one seed."""
        return None if self.deviation is None else self.deviation**2 / self.n


def stat(values: Sequence[float]) -> Stat | None:
    """The statistics of what is known, None where nothing is."""
    if not values:
        return None
    n, mean = len(values), math.fsum(values) / len(values)
    # statistics.stdev computes with fractions: 30 times slower, which a report of 1,000 points shows.
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1)) if n > 1 else None
    return Stat(mean, deviation, n)


@dataclass(frozen=True)
class Quality:
    """The metric of a task, and how it is written.

    Attributes:
        metric: its name without prefix.
        is_loss: it has a unit of its own, and less is better. Any other is a fraction, which is written in percent; its
            differences are in points, a hundredth each.
    """

    metric: str
    is_loss: bool

    @classmethod
    def of(cls, metric: str) -> Quality:
        """The metric of that name."""
        return cls(metric, metric in LOSSES)

    @property
    def scale(self) -> float:
        """The factor of a written value."""
        return 1.0 if self.is_loss else 100.0

    @property
    def label(self) -> str:
        """The metric with its unit."""
        return self.metric if self.is_loss else f"{self.metric}, %"

    @property
    def difference_label(self) -> str:
        """The difference from dense with its unit."""
        return f"{self.metric} − dense" if self.is_loss else f"{self.metric} − dense, points"

    @property
    def direction(self) -> str:
        """What is to be said of a metric of which less is better."""
        return " (lower is better)" if self.is_loss else ""

    def is_better(self, one: float, other: float) -> bool:
        """Whether a value is better than another."""
        return one < other if self.is_loss else one > other

    def text(self, value: Stat | None) -> str:
        """The mean and the deviation: 87.21 ± 0.34; "" where nothing is known."""
        return "" if value is None else f"{self.scale * value.mean:.2f}{self._deviation(value)}"

    def difference(self, value: Stat | None) -> str:
        """The same for a difference, which has a sign: -1.21 ± 0.34."""
        return "" if value is None else f"{self.scale * value.mean:+.2f}{self._deviation(value)}"

    def _deviation(self, value: Stat) -> str:
        return "" if value.deviation is None else f" ± {self.scale * value.deviation:.2f}"


@dataclass(frozen=True)
class Cost:
    """One measure of a model's cost.

    Attributes:
        key: of the link to its plot.
        name: among the values of a result.
        title: with its unit, as the label of an axis.
        column: the same, as the heading of a column.
        text: how a value reads.
        missing: why no point may have it.
    """

    key: str
    name: str
    title: str
    column: str
    text: Callable[[float], str]
    missing: str


def milliseconds(value: float) -> str:
    """12.34 → "12.3 ms"."""
    return f"{value:.3g} ms"


def plain_percent(value: float) -> str:
    """0.03 → "3 %"."""
    return f"{100 * value:.3g} %"


def compact(value: float) -> str:
    """8051234 → "8.05 M"."""
    for unit, factor in ((" T", 1e12), (" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def _bytes(value: float) -> str:
    return f"{compact(value)}B" if value >= 1e3 else f"{value:.0f} B"


DENSITY = Cost("density", "density", "density (weights kept)", "density", percent, "It is in every result.")
NONZERO = Cost(
    "nonzero", "encoder_nonzero", "non-zero parameters of the encoder", "non-zero", compact, "It is in every result."
)
BYTES = Cost("bytes", "bytes", "bytes of the artifact", "bytes", _bytes, "It is in every result.")
FLOPS = Cost(
    "flops",
    "sparse_flops",
    "FLOPs of a forward pass with the weights kept",
    "FLOPs",
    compact,
    "Artifacts of earlier versions do not state them.",
)
LATENCY = Cost(
    "latency",
    "latency_ms",
    "measured CPU latency (one input, one thread)",
    "latency",
    milliseconds,
    "The notes of a job say why it could not be measured.",
)
COSTS = (DENSITY, NONZERO, BYTES, FLOPS, LATENCY)
"""By what a report shows the difference from dense, a plot each."""


def values_of(point: SweepPoint) -> dict[str, float]:
    """What gates and objectives are about, by name. What is not known, or not finite, is left out."""
    counts = {} if point.accounting is None else vars(point.accounting)
    result = {"metrics": point.metrics, "accounting": counts, "total_bytes": point.total_bytes}
    values = outcome(point.number, point.cell, result).values
    return {
        name: float(value) for name, value in values.items() if math.isfinite(value) and (value or name != BYTES.name)
    }
