"""The options that were given, and the error that they get: FIELD must be RULE, got VALUE."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.problem import Problem

_NAMES = {"baseline": "dense_baseline"}  # of options that have another one in `compress`


def given_fields(options: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not at their defaults."""
    given = {field.name: (getattr(options, field.name), field.default) for field in fields(options) if field.init}
    return {name: value for name, (value, default) in given.items() if value is not default and value != default}


def refuse(problems: Iterable[Problem], error: type[ValueError] = ValueError) -> None:
    """Raises a ValueError with all problems, in the names of `compress`: training.epochs, schedule.cooldown."""
    if found := [f"{_name(one.option)} {one.text}" for one in problems]:
        raise error("; ".join(found))


def _name(option: str) -> str:
    path = PARAMETERS[option].fields[0] if option in PARAMETERS else ""
    holder = next((holder for holder in ("training", "schedule", "teacher") if f".{holder}." in path), "")
    return f"{holder}.{path.rpartition('.')[2]}" if holder and option != holder else _NAMES.get(option, option)
