"""The catalog of a server: models, tasks, methods."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from mvprune.client.pages import listed
from mvprune.client.transport import Transport
from mvprune.sources.known_models import ModelSize
from mvprune.spec.fields import METHODS
from mvprune.spec.vocabulary import method_entry, task_entry
from mvprune.v1 import catalog_pb2


@dataclass(frozen=True)
class ModelEntry:
    """A model that jobs can name.

    Attributes:
        name: as `Client.submit` takes it.
        source: SERVER, a folder under one of the server's roots, or HUB, one of the best known ones of the hub.
        size: None: it cannot be used.
        problem: why it cannot; "" if it can.
    """

    name: str
    source: str
    size: ModelSize | None
    problem: str


@dataclass(frozen=True)
class TaskEntry:
    """A task that jobs can name.

    Attributes:
        kind: classification, regression, question-answering, token-classification, …: see `mvpctl tasks`.
        primary_metric: the one of `metrics` that results are compared by; more of it is better if `higher_is_better`.
        has_data: whether the server has the task's own files.
        hub_id: where they come from otherwise; "": every job brings its own.
    """

    name: str
    kind: str
    description: str
    metrics: tuple[str, ...]
    primary_metric: str
    higher_is_better: bool
    has_data: bool
    hub_id: str


@dataclass(frozen=True)
class MethodOption:
    """An option of a method.

    Attributes:
        field: its path in the contract's message, such as schedule.pruning_start.
        words: what it takes; empty: a number from `min` to `max`, but not `min` itself if `above_min`.
    """

    name: str
    field: str
    words: tuple[str, ...]
    min: float | None
    max: float | None
    above_min: bool
    description: str

    @property
    def allowed(self) -> str:
        """Its values, in words."""
        if self.words:
            return ", ".join(self.words)
        if self.min is None or self.max is None:
            return "a text"
        return f"{'more than ' if self.above_min else ''}{self.min:g} to {self.max:g}"


@dataclass(frozen=True)
class MethodEntry:
    """A method of pruning, with its options."""

    name: str
    description: str
    options: tuple[MethodOption, ...]


async def models(transport: Transport) -> AsyncGenerator[ModelEntry, None]:
    """See `Client.models`."""
    async for message in listed(transport, transport.catalog.ListModels, catalog_pb2.ListModelsRequest(), "models"):
        yield model_entry(message)


async def tasks(transport: Transport) -> AsyncGenerator[TaskEntry, None]:
    """See `Client.tasks`."""
    async for message in listed(transport, transport.catalog.ListTasks, catalog_pb2.ListTasksRequest(), "tasks"):
        yield _task(message)


async def methods(transport: Transport) -> AsyncGenerator[MethodEntry, None]:
    """See `Client.methods`."""
    async for message in listed(transport, transport.catalog.ListMethods, catalog_pb2.ListMethodsRequest(), "methods"):
        yield _method(message)


def own_tasks() -> list[TaskEntry]:
    """The tasks that this version knows, without a server: which of them have data there is not known."""
    from mvprune.data.tasks import TASKS  # late, so that clients start without the readers of data

    return [_task(task_entry(task)) for task in TASKS.values()]


def own_methods() -> list[MethodEntry]:
    """The methods that this version knows, without a server."""
    return [_method(method_entry(field)) for field in METHODS.values()]


def model_entry(message: catalog_pb2.ModelEntry) -> ModelEntry:
    known = catalog_pb2.ModelEntry.Source.DESCRIPTOR.values_by_number.get(message.source)
    size = message.size
    counts = ModelSize(size.base_parameters, size.encoder_parameters, size.prunable_weights)
    return ModelEntry(
        name=message.name,
        source=known.name if known else "SOURCE_UNSPECIFIED",
        size=counts if message.HasField("size") else None,
        problem=message.problem,
    )


def _task(message: catalog_pb2.TaskEntry) -> TaskEntry:
    return TaskEntry(
        name=message.name,
        kind=message.kind,
        description=message.description,
        metrics=tuple(message.metrics),
        primary_metric=message.primary_metric,
        higher_is_better=message.higher_is_better,
        has_data=message.has_data,
        hub_id=message.hub_id,
    )


def _method(message: catalog_pb2.MethodEntry) -> MethodEntry:
    return MethodEntry(message.name, message.description, tuple(map(_option, message.options)))


def _option(message: catalog_pb2.MethodOption) -> MethodOption:
    return MethodOption(
        name=message.name,
        field=message.field,
        words=tuple(message.words),
        min=message.min if message.HasField("min") else None,
        max=message.max if message.HasField("max") else None,
        above_min=message.above_min,
        description=message.description,
    )
