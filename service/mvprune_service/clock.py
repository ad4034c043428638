"""The one place for time. Everything that needs it is given a Clock."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]  # microseconds since the epoch

SECOND = 1_000_000


def system_clock() -> int:
    """Wall-clock microseconds since the epoch."""
    return time.time_ns() // 1000
