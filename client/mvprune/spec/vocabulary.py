"""The methods and tasks of this version: what a server of it lists, and what a client knows without one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mvprune.spec.contract import comment
from mvprune.v1 import catalog_pb2, job_pb2

if TYPE_CHECKING:
    from mvprune.data.tasks import Task

METHODS: tuple[Any, ...] = tuple(job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields)
"""The fields of the contract that are methods, in its order."""


@dataclass(frozen=True)
class Bound:
    """An allowed range of numbers."""

    low: float
    high: float
    open_low: bool = False

    def __contains__(self, value: float) -> bool:
        return math.isfinite(value) and self.low <= value <= self.high and not (self.open_low and value == self.low)

    def __str__(self) -> str:
        return f"{'more than' if self.open_low else 'from'} {self.low:g} to {self.high:.15g}"


METHOD_BOUNDS = {"score_learning_rate": Bound(0, 100, open_low=True), "penalty": Bound(0, 1e6)}
SCHEDULE_BOUNDS = {"warmup": Bound(0, 1), "cooldown": Bound(0, 1, open_low=True)}


def task_entry(task: Task, *, has_data: bool = False) -> catalog_pb2.TaskEntry:
    """A task for people.

    Args:
        has_data: whether the server has the task's files.
    """
    return catalog_pb2.TaskEntry(
        name=task.name,
        kind=task.kind.name,
        description=task.description,
        metrics=task.metrics,
        primary_metric=task.primary_metric,
        higher_is_better=task.higher_is_better,
        has_data=has_data,
        hub_id=task.hub_id or "",
    )


def method_entry(field: Any) -> catalog_pb2.MethodEntry:
    """One of `METHODS` for people."""
    return catalog_pb2.MethodEntry(
        name=field.name,
        description=comment(field.message_type.full_name),
        options=_options(field.message_type, ""),
    )


def _options(message: Any, path: str) -> Iterator[catalog_pb2.MethodOption]:
    """The options of a method; those of its schedule are among them."""
    for field in message.fields:
        if field.message_type is not None:
            yield from _options(field.message_type, f"{path}{field.name}.")
            continue
        option = catalog_pb2.MethodOption(
            name=field.name, field=f"{path}{field.name}", description=comment(field.full_name)
        )
        if field.enum_type is not None:
            option.words.extend(word.name.lower() for word in field.enum_type.values if word.number)
            option.description = option.description or comment(field.enum_type.full_name)
        if bound := (METHOD_BOUNDS | SCHEDULE_BOUNDS).get(field.name):
            option.min, option.max, option.above_min = bound.low, bound.high, bound.open_low
        yield option
