"""Values of several jobs on a command line: 0.03,0.05 and 0..4, and cells such as density=1,model=./small."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mvprune.cli.shared.submit_parser import naming, read_value
from mvprune.common.suggestions import did_you_mean
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.sweep_settings import AXES

MOST = 10_000  # values of an axis
_RANGE = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})")
_NAMES = ("model", "teacher", "mask_from", "task")


def whole_numbers(text: str) -> list[int] | None:
    """0..4 -> [0, 1, 2, 3, 4]; None: it is no range. Raises ValueError for one that is empty, or too long."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + MOST:
        raise ValueError(f"must be FIRST..LAST with at most {MOST:,} numbers, got {text!r}")
    return list(range(first, last + 1))


def splits(one: Parameter) -> bool:
    """Whether a comma separates values of a parameter."""
    return one.kind is not Kind.TEXT or one.name in _NAMES


def values_of(one: Parameter) -> Callable[[str], list[Any]]:
    """The type of an option that takes one or more values of a parameter."""

    def values(text: str) -> list[Any]:
        is_path = one.kind is Kind.TEXT and "," in text and Path(text).expanduser().exists()
        if is_path or not splits(one):
            return [text]
        return [value for part in text.split(",") for value in _values(one, part.strip())]

    return values


def cell(text: str) -> dict[str, Any]:
    """density=1,model=./small -> {"density": 1.0, "model": "./small"}; "teacher=" is None, which unsets it."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        name = name.strip().replace("-", "_")
        if not separator:
            raise argparse.ArgumentTypeError(f"must be PARAMETER=VALUE,..., got {text!r}")
        if name not in AXES:
            rule = f"must be parameters of jobs with their values, got {name!r}{did_you_mean(name, AXES)}"
            raise argparse.ArgumentTypeError(rule)
        with naming(name):
            found[name] = read_value(AXES[name], value.strip())
    return found


def _values(one: Parameter, text: str) -> list[Any]:
    if one.kind is Kind.WHOLE:
        try:
            if (numbers := whole_numbers(text)) is not None:
                return list(numbers)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    if not text:
        raise argparse.ArgumentTypeError("must be a value between commas, got ''")
    return [read_value(one, text)]
