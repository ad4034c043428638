"""The curve of one phase of training: of bounded size, and the same after an interruption."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mvprune.artifact.history import MAX_POINTS, Evaluated, Phase

_DIGITS = 6  # significant ones, of what is stored


class Curve:
    """Loss and density over the steps of a phase, and its evaluations.

    The steps are divided into at most `MAX_POINTS` intervals, which depend only on the number of steps. Each interval
    is one point: its mean loss, and the density at its end. So an interruption does not change the curve.

    Args:
        phase: "dense" or "pruning".
        total_steps: steps of the phase; 0 if nothing is trained.
    """

    def __init__(self, phase: str, total_steps: int) -> None:
        self.phase, self.total_steps = phase, total_steps
        self._interval = max(1, math.ceil(total_steps / MAX_POINTS))
        self._points: list[list[float]] = []  # step, sum of losses, their number, density
        self._evaluations: list[tuple[int, dict[str, float]]] = []

    def add(self, step: int, loss: float, density: float) -> None:
        """Adds a training step, counted from 1."""
        if self._points and self._same_interval(self._points[-1][0], step):
            _, total, number, _ = self._points[-1]
            self._points[-1] = [step, total + loss, number + 1, density]
        else:
            self._points.append([step, loss, 1, density])

    def add_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Adds an evaluation after `step` steps. Metrics that are not finite, which JSON lacks, are left out."""
        if self._evaluations and self._same_interval(self._evaluations[-1][0], step):
            self._evaluations.pop()
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        self._evaluations.append((step, finite))

    def state(self) -> dict[str, Any]:
        """The state for `restore`, as JSON values."""
        return {"points": [list(point) for point in self._points], "evaluations": list(self._evaluations)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned."""
        self._points = [list(point) for point in state["points"]]
        self._evaluations = [(step, metrics) for step, metrics in state["evaluations"]]

    def history(self) -> Phase:
        """The curve as the artifact stores it."""
        return Phase(
            name=self.phase,
            total_steps=self.total_steps,
            steps=tuple(int(step) for step, *_ in self._points),
            loss=tuple(_short(total / number) for _, total, number, _ in self._points),
            density=tuple(_short(density) for *_, density in self._points),
            evaluations=tuple(Evaluated(step, metrics) for step, metrics in self._evaluations),
        )

    def _same_interval(self, one: float, other: float) -> bool:
        return (one - 1) // self._interval == (other - 1) // self._interval


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
