"""Checks of option values. Messages read: FIELD must be RULE, got VALUE."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, get_args

from mvprune.common.suggestions import must_be_one_of
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.rules import Problem

_NAMES = {"baseline": "dense_baseline"}  # of options that have another one in `compress`


def given_fields(options: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not at their defaults."""
    given = {field.name: (getattr(options, field.name), field.default) for field in fields(options) if field.init}
    return {name: value for name, (value, default) in given.items() if value is not default and value != default}


def refuse(problems: Iterable[Problem], error: type[ValueError] = ValueError) -> None:
    """Raises a ValueError with all problems, in the names of `compress`: training.epochs, schedule.warmup, density."""
    if found := [f"{_name(one.option)} {one.text}" for one in problems]:
        raise error("; ".join(found))


def _name(option: str) -> str:
    path = PARAMETERS[option].fields[0] if option in PARAMETERS else ""
    holder = next((holder for holder in ("training", "schedule", "teacher") if f".{holder}." in path), "")
    return f"{holder}.{option}" if holder and option != holder else _NAMES.get(option, option)


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
