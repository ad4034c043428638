"""Checks of option values. Messages read: FIELD must be RULE, got VALUE."""

from __future__ import annotations

import math
from typing import Any, get_args

from mvprune.common.suggestions import must_be_one_of


def check_positive(name: str, value: float | None) -> None:
    """Raises ValueError unless `value` is a finite number above 0."""
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a positive number, got {value}")


def check_not_negative(name: str, value: float | None) -> None:
    """Raises ValueError unless `value` is None or a finite number of at least 0."""
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {value}")


def check_fraction(name: str, value: float, interval: str, why: str = "") -> None:
    """Raises ValueError unless `value` lies in `interval`, such as "[0, 1)"; `why` is a reason for the message."""
    inside = isinstance(value, int | float) and 0 <= value <= 1
    if not inside or (value == 0 and interval.startswith("(")) or (value == 1 and interval.endswith(")")):
        raise ValueError(f"{name} must be a fraction in {interval}, got {value!r}{why and f'; {why}'}")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raises ValueError unless `value` is one of the strings of the Literal `choices`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} {must_be_one_of(get_args(choices), value)}")
