"""The named tasks, of all kinds: what each reads, predicts and is measured by.

Columns, label order and splits are those of the data sets on the Hugging Face hub (`nyu-mll/glue`,
`rajpurkar/squad`, `rajpurkar/squad_v2`, `lhoestq/conll2003`, `Salesforce/wikitext`); folder and file names are those of
GLUE's own download (Wang et al. 2019, arXiv:1804.07461) and of the other data sets' authors.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from mvprune.common.plugins import plugins
from mvprune.common.suggestions import must_be_one_of
from mvprune.data import kinds
from mvprune.data.kinds.base import Task

__all__ = ["LOSSES", "TASKS", "Task", "UnknownTask", "get_task"]


class UnknownTask(ValueError):
    """There is no task of that name; the text lists the names."""


def _found() -> list[Task]:
    """The tasks of every file in the folder of kinds, and of the modules that other packages have as entry points of
    the group `mvprune.kinds`; those that have data of their own come first."""
    files = (importlib.import_module(f"{kinds.__name__}.{file.name}") for file in pkgutil.iter_modules(kinds.__path__))
    found: list[Task] = [task for file in (*files, *plugins("mvprune.kinds")) for task in getattr(file, "TASKS", ())]
    return sorted(found, key=lambda task: task.hub_id is None)


TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in _found()})

LOSSES = frozenset().union(*(task.kind.losses for task in TASKS.values()))
"""Metrics that have a unit of their own and of which less is better; all others are fractions or correlations."""


def get_task(name: str, metric: str = "") -> Task:
    """The task called `name`. Raises UnknownTask, whose text lists the names.

    Args:
        name: the task's name.
        metric: what its results are compared by, see `Task.measured_by`; "": the task's primary metric.
    """
    try:
        return TASKS[name].measured_by(metric)
    except KeyError:
        raise UnknownTask(f"the task {must_be_one_of(TASKS, name[:80])}") from None
