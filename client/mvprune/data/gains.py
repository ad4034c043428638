"""How much of what the dense model gains over a constant answer a pruned model keeps.

Research and core judge results by the same rule, so it is here, without torch.
"""

from __future__ import annotations

import math

KEPT_GAIN = 2 / 3
"""A result that keeps less of the dense model's gain lost much: its run was too short, or its density too low."""
MOST_GAIN = 0.9
"""One that keeps less than that has lost enough to say what would help."""
LEAST_GAIN = 0.05
"""A dense model that gains less, five points or 5 % of a perplexity, has nothing to keep."""


def gain(value: float, constant: float, *, is_loss: bool) -> float:
    """How much a metric is better than that of a constant answer: the difference; of a perplexity that of its log.

    Args:
        value, constant: fractions or correlations, or perplexities above 0.
        is_loss: whether they are perplexities, of which less is better.
    """
    return math.log(constant / value) if is_loss else value - constant


def kept_gain(value: float, dense: float, constant: float, *, is_loss: bool = False) -> float | None:
    """The fraction of the dense model's gain that a result keeps; None if that gain is below `LEAST_GAIN`.

    Args:
        value, dense, constant: the metric of the result, of the dense model and of the best constant answer.
        is_loss: see `gain`.
    """
    whole = gain(dense, constant, is_loss=is_loss)
    return None if whole < LEAST_GAIN else gain(value, constant, is_loss=is_loss) / whole
