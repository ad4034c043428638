"""Checks of options, in words for people."""

from __future__ import annotations

import math


def check_positive(name: str, value: float | None) -> None:
    """Raises ValueError unless `value` is a positive number, or None."""
    if value is not None and not 0 < value < math.inf:
        raise ValueError(f"{name}: {value} given; a positive number is allowed")


def check_not_negative(name: str, value: float | None) -> None:
    """Raises ValueError unless `value` is a number of 0 or more, or None."""
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value} given; a number of 0 or more is allowed")
