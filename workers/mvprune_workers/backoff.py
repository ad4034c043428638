"""Delays between tries."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator


def delays(first: float = 0.2, cap: float = 5.0) -> Iterator[float]:
    """Infinite delays in seconds, doubling from `first` up to `cap`. Each is random in the upper half of its range, so
    that workers that lost the same server do not reconnect at the same time."""
    for exponent in itertools.count():
        ceiling = min(cap, first * 2.0 ** min(exponent, 32))
        yield random.uniform(ceiling / 2, ceiling)  # noqa: S311
