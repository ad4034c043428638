"""The values that a job has recorded, as curves, drawn without scripts, and as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mvprune.artifact.report.svg import Axis, Plot
from mvprune.client.models import MetricPoint

MAX_CURVES = 6
MAX_POINTS = 1000  # of a curve that a browser draws
PICTURE_POINTS = 300  # of a picture
_ROWS = 25  # of a table
_FIRST = ("pruning/loss", "pruning/density", "dense/loss")


class Curve(NamedTuple):
    """The values of one metric, by step."""

    metric: str
    steps: list[int]
    values: list[float]

    @property
    def svg(self) -> str:
        """The curve as a picture."""
        low, high = min(self.values), max(self.values)
        room = max(0.06 * (high - low), 0.01 * abs(high), 1e-6)
        is_share = self.metric.endswith("density")
        y = Axis("weights kept", 0.0, 1.0, ".0%") if is_share else Axis(self.name, min(0.0, low - room), high + room)
        plot = Plot(self.metric, Axis("step", 0.0, 1.01 * max(1, *self.steps)), y)
        style = "curve dense" if self.metric.startswith("dense/") else "curve pruned"
        plot.line(zip(self.steps, self.values, strict=True), style)
        return plot.svg()

    @property
    def name(self) -> str:
        """pruning/loss -> loss"""
        return self.metric.rpartition("/")[2]

    @property
    def rows(self) -> list[tuple[str, str]]:
        """A few of the values, from the first to the last."""
        thin = thinned(self, _ROWS)
        return [(f"{step:,}", f"{value:.4f}") for step, value in zip(thin.steps, thin.values, strict=True)]


def curves_of(metrics: Mapping[str, Sequence[MetricPoint]]) -> list[Curve]:
    """The curves of a job, the most important ones first. What is no number is left out."""
    names = sorted(metrics, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    found = []
    for name in names:
        points = [point for point in metrics[name] if math.isfinite(point.value)]
        if points:
            found.append(Curve(name, [point.step for point in points], [point.value for point in points]))
    return found[:MAX_CURVES]


def thinned(curve: Curve, most: int) -> Curve:
    """The same curve of at most so many points: of each stretch of steps its lowest and its highest value, and both
    ends."""
    size = len(curve.steps)
    if size <= most:
        return curve
    pieces = max(1, (most - 2) // 2)
    kept = {0, size - 1}
    for piece in range(pieces):
        places = range(piece * size // pieces, (piece + 1) * size // pieces)
        kept |= {min(places, key=curve.values.__getitem__), max(places, key=curve.values.__getitem__)}
    order = sorted(kept)
    return Curve(curve.metric, [curve.steps[one] for one in order], [curve.values[one] for one in order])


def as_json(curves: Sequence[Curve]) -> dict[str, object]:
    """What a browser draws."""
    return {"curves": [curve._asdict() for curve in curves]}
