"""Kinds of task: one file each; an `Objective` with a `kind` in a file of this folder is all that a new one needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from mvprune.common.plugins import classes_in, plugins
from mvprune.data.kinds.base import Kind, TaskData
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.tasks.base import Objective

GROUP = "mvprune.objectives"
"""The entry points of other packages: the name of a kind, and its `Objective`."""
OBJECTIVES: Mapping[str, type[Objective]] = MappingProxyType(
    {cls.kind: cls for cls in classes_in(__name__, __path__, Objective, "kind")}
)
"""The objective of each kind of task, by the kind's name."""


def objective_of_kind(kind: Kind[Any]) -> type[Objective]:
    """The objective of a kind of task: one of `OBJECTIVES`, or an entry point of another package.

    Raises:
        CompressionError: MISSING_DEPENDENCY, no installed package has it.
    """
    for found in chain((OBJECTIVES.get(kind.name),), plugins(GROUP, kind.name)):
        if found is not None:
            objective: type[Objective] = found
            return objective
    raise CompressionError(
        Reason.MISSING_DEPENDENCY,
        f"the kind of task {kind.name} must have an entry point of the group {GROUP} beside that of mvprune.kinds; "
        "install the package that has it",
    )


def measured_by(data: TaskData, metric: str) -> TaskData:
    """Data of a task whose results are compared by a metric, see `Task.measured_by`."""
    task = data.task.measured_by(metric)
    if task is data.task:
        return data
    changed: Any = {"task": task}
    if (test := getattr(data, "test", None)) is not None:
        changed["test"] = measured_by(test, metric)
    return replace(data, **changed)  # type: ignore[type-var]


def objective_for(data: TaskData, given: Mapping[str, Any] = MappingProxyType({})) -> Objective:
    """The objective of a data set that `load_task` returned.

    Args:
        data: the data set.
        given: options of a run by name, with those of the kind.
    """
    return objective_of_kind(data.task.kind)(data, options_of(data.task.kind, given))


def options_of(kind: Kind[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options of a run those that a kind takes, as far as they are given."""
    return {name: given[name] for name in sorted(kind.options) if given.get(name) not in (None, "")}


__all__ = ["OBJECTIVES", "Objective", "TaskData", "measured_by", "objective_for", "objective_of_kind", "options_of"]
