"""Which runs cannot become the best of their density any more.

Evaluations of two runs are comparable only at the target density, in the cool-down, and at the same fraction of their
steps. From there on a run can still improve. What it can gain is taken from the runs that have finished: at most the
largest gain that any of them had from that fraction to its end, and a margin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MARGIN = 0.01  # of the metric: one point
_FEWEST = 2  # finished runs that a gain is taken from


@dataclass(frozen=True)
class Curve:
    """The evaluations of a run at its target density.

    Attributes:
        density: the target density.
        values: fraction of the steps to the metric, larger is better. The fractions are those of the cool-down.
        final: the metric at the end; None while it runs.
    """

    density: float
    values: Mapping[float, float]
    final: float | None = None


def hopeless(running: Mapping[int, Curve], finished: Sequence[Curve]) -> list[int]:
    """The numbers of the running points that cannot become the best of their density.

    Args:
        running: number of a point to its curve.
        finished: curves of the points that have ended, with `final`.
    """
    return [number for number, curve in running.items() if _is_hopeless(curve, finished)]


def _is_hopeless(curve: Curve, finished: Iterable[Curve]) -> bool:
    if not curve.values:
        return False
    fraction = max(curve.values)
    gains, best = list[float](), list[float]()
    for other in finished:
        if other.density != curve.density or other.final is None:
            continue
        best.append(other.final)
        earlier = [at for at in other.values if at <= fraction]
        if earlier:
            gains.append(other.final - other.values[max(earlier)])
    if len(gains) < _FEWEST:
        return False
    return curve.values[fraction] + max(0.0, *gains) + MARGIN < max(best)
