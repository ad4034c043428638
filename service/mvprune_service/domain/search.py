"""The search for the smallest density that passes: bisection over a ladder of densities.

A result is noisy, and falls with the density only on average. So a density passes if the mean, or the worst, over its
seeds passes all gates; the search looks between the smallest density that passed and the largest below it that did
not; and it recommends a density that was measured, never one in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_DIGITS = 3


def ladder(low: float, high: float, tolerance: float) -> list[float]:
    """Densities from `low` to `high`, ascending. Each is at most 1 + `tolerance` times the one before it, up to
    rounding to three significant digits."""
    steps = max(1, math.ceil(math.log(high / low) / math.log1p(tolerance))) if high > low else 0
    inner = (low * (high / low) ** (step / steps) for step in range(1, steps))
    return list(dict.fromkeys([low, *(float(f"{density:.{_DIGITS}g}") for density in inner), high]))


def next_step(steps: int, passed: Mapping[int, bool]) -> int | None:
    """The index of the density to measure next; None once the smallest one that passes is known.

    Args:
        steps: how many densities the ladder has.
        passed: index to whether the density passes, of those measured.
    """
    high = min((index for index, passes in passed.items() if passes), default=steps)
    low = max((index for index, passes in passed.items() if not passes and index < high), default=-1)
    return (low + high) // 2 if high - low > 1 else None


def most_steps(steps: int) -> int:
    """How many densities the search measures at most."""
    return math.ceil(math.log2(steps + 1))
