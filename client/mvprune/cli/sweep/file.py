"""The section `sweep` of a job file: parameters with their values, and `mvprune.spec.sweep_settings`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mvprune.cli.shared.jobfile import SECTION, Key, Problem, beside, value_of, wrong
from mvprune.cli.shared.yaml import Items, Node, Place, Scalar, Table
from mvprune.cli.sweep.values import whole_numbers
from mvprune.common.suggestions import did_you_mean
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import SETTINGS
from mvprune.spec.sweep_settings import AXES, POINTS, WITHOUT

_CELLS = (POINTS, WITHOUT)
_BOUNDS = ("min", "max")
_FORM = "a list of values, FIRST..LAST for whole numbers, or {min: A, max: B, log: true} for strategy: random"


def read_section(node: Node, places: dict[Key, Place], folder: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The axes and settings of a sweep, and what is wrong with them.

    Args:
        places: gets where each key is, ("sweep", "seed"), and its parts: ("sweep", "seed", 0), ("sweep", "points", 0,
            "density").
        folder: where relative paths begin.
    """
    if not isinstance(node, Table):
        return {}, [wrong(SECTION, node, "a table, such as {density: [0.03, 0.05], seed: 0..4}")]
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, part in node.entries:
        problems += _read_key(key, part, values, places, folder)
    return values, problems


def _read_key(
    key: Scalar, node: Node, values: dict[str, Any], places: dict[Key, Place], folder: Path
) -> Iterator[Problem]:
    name = str(key.value)
    shown = f"{SECTION}.{name}"
    places[(SECTION, name)] = node.place
    if name in _CELLS:
        values[name], problems = _cells(name, node, places, folder)
        yield from problems
    elif name in SETTINGS:
        found = _setting(SETTINGS[name], node, places)
        if found is None:
            one = SETTINGS[name]
            yield wrong(shown, node, f"one of {one.takes}" if one.words else one.takes)
        else:
            values[name] = found
    elif name in AXES:
        found, problems = _axis(AXES[name], shown, node, places)
        yield from problems
        values[name] = [beside(folder, name, value) for value in found] if isinstance(found, list) else found
    else:
        hint = (
            did_you_mean(name, [*SETTINGS, *_CELLS, *AXES]) or "; `mvpctl sweep create --print-schema` lists the keys"
        )
        yield Problem(
            key.place, f"{SECTION}: must have parameters of jobs and settings of sweeps, got {name!r:.100}{hint}"
        )


def _setting(one: Parameter, node: Node, places: dict[Key, Place]) -> Any:
    """The value of a setting; None: it is of the wrong kind."""
    if one.kind is not Kind.TEXTS:
        return value_of(one, node) if isinstance(node, Scalar) else None
    if not isinstance(node, Items):
        return None
    texts = [item.value for item in node.items if isinstance(item, Scalar) and isinstance(item.value, str)]
    places.update({(SECTION, one.name, index): item.place for index, item in enumerate(node.items)})
    return texts if len(texts) == len(node.items) else None


def _axis(one: Parameter, shown: str, node: Node, places: dict[Key, Place]) -> tuple[Any, list[Problem]]:
    """The values of a parameter: a list, or the bounds of a range."""
    if isinstance(node, Table) and one.kind in (Kind.NUMBER, Kind.WHOLE):
        return _range(shown, node)
    if isinstance(node, Scalar) and isinstance(node.value, str) and one.kind is Kind.WHOLE:
        try:
            if (numbers := whole_numbers(node.value)) is not None:
                return numbers, []
        except ValueError as error:
            return [], [Problem(node.place, f"{shown}: {error}")]
    if not isinstance(node, Items):
        return [], [wrong(shown, node, _FORM)]
    found, problems = [], []
    for index, item in enumerate(node.items):
        places[(SECTION, one.name, index)] = item.place
        value, problem = _one(one, f"{shown}[{index}]", item)
        found.append(value)
        problems += problem
    return found, problems


def _one(one: Parameter, shown: str, node: Node) -> tuple[Any, list[Problem]]:
    """One value of a parameter; null unsets it."""
    if isinstance(node, Scalar) and node.value is None:
        return None, []
    if one.kind is Kind.TEXTS and isinstance(node, Items):
        texts = [item.value for item in node.items if isinstance(item, Scalar) and isinstance(item.value, str)]
        return texts, [] if len(texts) == len(node.items) else [wrong(shown, node, one.takes)]
    value = value_of(one, node) if isinstance(node, Scalar) else None
    return value, [] if value is not None else [wrong(shown, node, f"one of {one.takes}" if one.words else one.takes)]


def _range(shown: str, node: Table) -> tuple[dict[str, Any], list[Problem]]:
    found = {str(key.value): part.value if isinstance(part, Scalar) else None for key, part in node.entries}
    numbers = [found.get(name) for name in _BOUNDS]
    is_right = set(found) <= {*_BOUNDS, "log"} and isinstance(found.get("log", False), bool)
    if not is_right or not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):  # type: ignore[arg-type]
        return {}, [wrong(shown, node, _FORM)]
    return found, []


def _cells(name: str, node: Node, places: dict[Key, Place], folder: Path) -> tuple[list[dict[str, Any]], list[Problem]]:
    if not isinstance(node, Items):
        return [], [wrong(f"{SECTION}.{name}", node, "a list of tables, such as [{density: 1, model: ./small}]")]
    found, problems = [], []
    for index, item in enumerate(node.items):
        shown = f"{SECTION}.{name}[{index}]"
        places[(SECTION, name, index)] = item.place
        if not isinstance(item, Table):
            problems.append(wrong(shown, item, "a table, such as {density: 1, model: ./small}"))
            continue
        cell = {}
        for key, part in item.entries:
            parameter = str(key.value)
            places[(SECTION, name, index, parameter)] = part.place
            if parameter not in AXES:
                hint = did_you_mean(parameter, AXES)
                problems.append(
                    Problem(key.place, f"{shown}: must have parameters of jobs, got {parameter!r:.100}{hint}")
                )
                continue
            value, problem = _one(AXES[parameter], f"{shown}.{parameter}", part)
            cell[parameter] = beside(folder, parameter, value)
            problems += problem
        found.append(cell)
    return found, problems
