"""Checks of options, in words for people."""

from __future__ import annotations

import math
from typing import Any, get_args

from mvprune.common.suggestions import must_be_one_of


def check_positive(name: str, value: float | None) -> None:
    """Raises ValueError unless `value` is a positive number."""
    if value is None or not 0 < value < math.inf:
        raise ValueError(f"{name}: {value} given; a positive number is allowed")


def check_not_negative(name: str, value: float | None) -> None:
    """Raises ValueError unless `value` is a number of 0 or more, or None."""
    if value is not None and not 0 <= value < math.inf:
        raise ValueError(f"{name}: {value} given; a number of 0 or more is allowed")


def check_choice(name: str, value: str, choices: Any) -> None:
    """Raises ValueError unless `value` is one of the words of the Literal `choices`."""
    if value not in get_args(choices):
        raise ValueError(f"{name} {must_be_one_of(get_args(choices), value)}")
