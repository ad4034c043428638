"""The curve of one phase of training, kept short enough for a run of any length, and across interruptions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mvprune.artifact.history import MAX_POINTS, Evaluated, Phase

_DIGITS = 6  # significant ones, of what is stored


class Curve:
    """Loss and density over the steps of a phase, and its evaluations.

    The steps are cut into at most `MAX_POINTS` stretches, which the length of the run alone decides; each is one point:
    its mean loss, and the density at its end. So a run that was interrupted has the curve of one that was not.

    Args:
        phase: "dense" or "pruning".
        total_steps: of the phase; 0 where nothing is trained.
    """

    def __init__(self, phase: str, total_steps: int) -> None:
        self._phase, self._total_steps = phase, total_steps
        self._stretch = max(1, math.ceil(total_steps / MAX_POINTS))
        self._points: list[list[float]] = []  # step, sum of losses, their number, density
        self._evaluations: list[tuple[int, dict[str, float]]] = []

    def add(self, step: int, loss: float, density: float) -> None:
        """One step, counted from 1, is done."""
        if self._points and self._same_stretch(self._points[-1][0], step):
            _, total, number, _ = self._points[-1]
            self._points[-1] = [step, total + loss, number + 1, density]
        else:
            self._points.append([step, loss, 1, density])

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """The model was evaluated after `step` steps. What is not finite is left out: JSON has no name for it."""
        if self._evaluations and self._same_stretch(self._evaluations[-1][0], step):
            self._evaluations.pop()
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        self._evaluations.append((step, finite))

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on from here; JSON."""
        return {"points": [list(point) for point in self._points], "evaluations": list(self._evaluations)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave."""
        self._points = [list(point) for point in state["points"]]
        self._evaluations = [(step, metrics) for step, metrics in state["evaluations"]]

    def phase(self) -> Phase:
        """The curve as an artifact stores it."""
        return Phase(
            name=self._phase,
            total_steps=self._total_steps,
            steps=tuple(int(step) for step, *_ in self._points),
            loss=tuple(_short(total / number) for _, total, number, _ in self._points),
            density=tuple(_short(density) for *_, density in self._points),
            evaluations=tuple(Evaluated(step, metrics) for step, metrics in self._evaluations),
        )

    def _same_stretch(self, one: float, other: float) -> bool:
        return (one - 1) // self._stretch == (other - 1) // self._stretch


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
