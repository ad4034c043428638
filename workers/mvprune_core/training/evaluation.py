"""Evaluations during training, and the best model among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Evaluation:
    """How a model is evaluated during training.

    Attributes:
        measure: returns the metrics of the model after a number of steps.
        metric: the metric that decides which model is best.
        higher_is_better: whether a higher value is better.
        check: raises the error that an evaluation would raise, if it is known by then. Called before every step.
        on_best: called after an evaluation of the model that is kept as the best so far.
    """

    measure: Callable[[int], Mapping[str, float]]
    metric: str
    higher_is_better: bool
    check: Callable[[], None] = lambda: None
    on_best: Callable[[], None] = lambda: None


@dataclass
class BestModel:
    """The best evaluation so far.

    Attributes:
        value: its metric; None before the first evaluation.
        evaluations_since: evaluations without improvement since then.
        tensors: the model's tensors then, on the CPU, if they are kept.
    """

    value: float | None = None
    evaluations_since: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def update(self, value: float, *, higher_is_better: bool) -> bool:
        """Adds an evaluation. Returns whether it is the best so far."""
        sign = 1 if higher_is_better else -1
        improved = self.value is None or sign * value > sign * self.value
        if improved:
            self.value, self.evaluations_since = value, 0
        else:
            self.evaluations_since += 1
        return improved
