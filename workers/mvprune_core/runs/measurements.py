"""Evaluations of a run that it may ask for again."""

from __future__ import annotations

from typing import Any, NamedTuple


class Measurement(NamedTuple):
    """An evaluation of a model on the validation examples.

    Attributes:
        metrics: the task's metrics.
        predictions: what they are computed from, which may be large.
    """

    metrics: dict[str, float]
    predictions: Any


class Measurements:
    """The last evaluation of a run and that of its best model, by the digests of the models.

    Others are not kept: the result of a phase is the model of its last step, or the best one.
    """

    def __init__(self) -> None:
        self._last: dict[str | None, Measurement] = {}
        self._best: dict[str | None, Measurement] = {}

    def get(self, digest: str | None) -> Measurement | None:
        """The evaluation of the model with this digest; None if there is none."""
        return (self._last | self._best).get(digest)

    def add(self, digest: str, found: Measurement) -> None:
        """Keeps an evaluation until the next one."""
        self._last = {digest: found}

    def keep_best(self) -> None:
        """Keeps the last evaluation until there is a better one."""
        self._best = self._last
