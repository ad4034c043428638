"""The methods and tasks of this version: what a server of it lists, and what a client knows without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mvprune.spec.annotations import annotation, bound_of, choice_of
from mvprune.spec.fields import words_of
from mvprune.v1 import catalog_pb2

if TYPE_CHECKING:
    from mvprune.data.tasks import Task


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
    """A method for people; `field`: one of the values of `METHODS`."""
    return catalog_pb2.MethodEntry(
        name=field.name, description=annotation(field).help, options=_options(field.message_type, "")
    )


def _options(message: Any, path: str) -> Iterator[catalog_pb2.MethodOption]:
    """The options of a method; those of its schedule are among them."""
    for field in message.fields:
        if field.message_type is not None:
            yield from _options(field.message_type, f"{path}{field.name}.")
            continue
        choice = choice_of(field)
        note = choice or annotation(field)
        if not note.help or (choice and field is not field.containing_oneof.fields[0]):
            continue  # what the server sets; a choice is one option
        option = catalog_pb2.MethodOption(
            name=note.name or field.name,
            field=f"{path}{field.name}",
            description=note.help,
            words=words_of(field),
        )
        if bound := bound_of(field):
            option.min, option.max, option.above_min = bound.low, bound.high, bound.open_low
        yield option
