"""The folders and files of this machine among the options of a call, before a request is made of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mvprune.sources.uploads import Kind
from mvprune.spec.messages import DEFAULT_OWN_DATA_TASK, names_no_model, reader_of
from mvprune.spec.parameters import PARAMETERS

_KINDS = {"model": Kind.MODEL, "file": Kind.DATA}  # by the unit of a parameter
_MASK = "mask_from"
FILES = ("train", "validation", "test")
"""Parameters that name a data file."""
_FIELDS = {  # where a parameter has several
    "teacher": "spec.teacher.model",
    _MASK: "spec.locked_mask.mask_from.model",
}
Visit = Callable[[str, Any, str], Any]
"""What is done with a value: gets its parameter, the value and its field in the request, returns what stands for it."""
Options = dict[str, Any]
"""The options of `Client.submit` or `Client.sweep`, `model` and `density` among them."""


class Local(NamedTuple):
    """A model's folder or a data file of this machine.

    Attributes:
        is_mask: whether only the zeros of the model are used, so that it may be an artifact.
    """

    kind: Kind
    path: Path
    is_mask: bool = False


def local(parameter: str, value: Any) -> Local | None:
    """The folder or file that a value names; None where it names none of this machine."""
    known = PARAMETERS.get(parameter)
    read = reader_of(known) if known else None
    if known is None or read is None or not value or not isinstance(value, str | os.PathLike):
        return None
    if isinstance(value, str) and names_no_model(parameter, value):
        return None
    path = Path(read(value))
    return Local(_KINDS[known.unit], path, parameter == _MASK) if path.is_absolute() else None


def visit_job(options: Mapping[str, Any], visit: Visit) -> Options:
    """The options of a job, with what `visit` returns in place of each value."""
    return {name: visit(name, value, f"job.{_field_of(name)}") for name, value in options.items()}


def visit_sweep(options: Mapping[str, Any], visit: Visit) -> Options:
    """The options of a sweep, with what `visit` returns in place of each value of the base, the axes and the cells."""
    cells = {"points": "points", "without": "exclude"}
    own = {"axes", *cells}
    visited = {
        name: value if name in own else visit(name, value, f"sweep.{_field_of(name)}".replace("spec.", "spec.base.", 1))
        for name, value in options.items()
    }
    if isinstance(axes := options.get("axes"), Mapping):
        visited["axes"] = {
            name: _visit_axis(name, values, visit, f"sweep.spec.axes[{index}]")
            for index, (name, values) in enumerate(axes.items())
        }
    for name, field in cells.items():
        if isinstance(given := options.get(name), Iterable):
            visited[name] = [
                _visit_cell(cell, visit, f"sweep.spec.{field}[{index}]") for index, cell in enumerate(given)
            ]
    return visited


class DataOptions(NamedTuple):
    """The options that say what the data of a job is."""

    task: str
    train: Any
    validation: Any
    test: Any
    text_column: str | None
    text_pair_column: str | None
    label_column: str | None
    source_column: str | None
    target_column: str | None

    @property
    def local(self) -> dict[str, Path]:
        """The files of this machine, by their parameter."""
        found = {name: local(name, getattr(self, name)) for name in FILES}
        return {name: one.path for name, one in found.items() if one}


def data_of(options: Mapping[str, Any]) -> list[DataOptions]:
    """The data of a job, or of the points of a sweep, each once."""
    axes, points = options.get("axes"), options.get("points")
    of_axes = [
        [(name, value) for value in values]
        for name, values in (axes.items() if isinstance(axes, Mapping) else ())
        if name in DataOptions._fields and isinstance(values, list | tuple)
    ]
    cells: Iterator[Mapping[str, Any]] = itertools.chain(
        map(dict, itertools.product(*of_axes)),
        (cell for cell in (points if isinstance(points, list | tuple) else ()) if isinstance(cell, Mapping)),
    )
    return list(dict.fromkeys(_data_of_job({**options, **cell}) for cell in cells))


def _data_of_job(options: Mapping[str, Any]) -> DataOptions:
    given = {name: options.get(name) or None for name in DataOptions._fields}
    return DataOptions(**given | {"task": given["task"] or DEFAULT_OWN_DATA_TASK})


def _visit_axis(name: str, values: Any, visit: Visit, field: str) -> Any:
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        return values  # a range; or what makes the request says what is wrong
    return [visit(name, value, f"{field}.values[{index}]") for index, value in enumerate(values)]


def _visit_cell(cell: Any, visit: Visit, field: str) -> Any:
    if not isinstance(cell, Mapping):
        return cell
    return {name: visit(name, value, f"{field}.{name}") for name, value in cell.items()}


def _field_of(parameter: str) -> str:
    """The field of a job that a parameter sets."""
    known = PARAMETERS.get(parameter)
    return _FIELDS.get(parameter) or (known.fields[0] if known else parameter)
