"""CatalogService: the models, tasks and methods that jobs can name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc.aio import ServicerContext as Context

from mvprune.common.excerpts import hidden
from mvprune.data.loading import find_task_files
from mvprune.data.tasks import TASKS, Task
from mvprune.sources.known_models import KNOWN_SIZES
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import HubModel, InvalidReference, Roots, resolve_model
from mvprune.spec.fields import METHODS
from mvprune.spec.vocabulary import method_entry, task_entry
from mvprune.v1 import catalog_pb2, catalog_pb2_grpc
from mvprune_service.api.access.threads import Threads
from mvprune_service.api.inventory import model_names
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.pagination import make_page, page_size, read_token

M = TypeVar("M", bound=Message)
R = TypeVar("R")
_AT_ONCE = 4  # looks at the disk


class CatalogServicer(catalog_pb2_grpc.CatalogServiceServicer):
    """Lists models, tasks and methods. The disk is read at each call."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._threads = Threads("catalog", _AT_ONCE)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def ListModels(
        self, request: catalog_pb2.ListModelsRequest, context: Context
    ) -> catalog_pb2.ListModelsResponse:
        return await self._threads.run(self._list_models, request)

    async def ListTasks(self, request: catalog_pb2.ListTasksRequest, context: Context) -> catalog_pb2.ListTasksResponse:
        tasks, token = await self._threads.run(_page, request, tuple(TASKS.values()), self._task)
        return catalog_pb2.ListTasksResponse(tasks=tasks, next_page_token=token)

    async def ListMethods(
        self, request: catalog_pb2.ListMethodsRequest, context: Context
    ) -> catalog_pb2.ListMethodsResponse:
        methods, token = _page(request, tuple(METHODS.values()), method_entry)
        return catalog_pb2.ListMethodsResponse(methods=methods, next_page_token=token)

    def _list_models(self, request: catalog_pb2.ListModelsRequest) -> catalog_pb2.ListModelsResponse:
        entry = catalog_pb2.ModelEntry
        known = [(entry.SERVER, name) for name in model_names(self._roots)]
        known += [(entry.HUB, name) for name in KNOWN_SIZES if (entry.SERVER, name) not in known]
        size, key = page_size(request.page_size), read_token(request.page_token, int, str)
        rows = [row for row in sorted(known) if key is None or row > tuple(key)][: size + 1]
        models, token = make_page(rows, size, lambda row: _model(*row, self._roots), lambda row: row)
        return catalog_pb2.ListModelsResponse(models=models, next_page_token=token)

    def _task(self, task: Task) -> catalog_pb2.TaskEntry:
        data = self._roots.data
        return task_entry(task, has_data=data is not None and find_task_files(task, data) is not None)


def _page(request: Any, known: Sequence[R], message: Callable[[R], M]) -> tuple[list[M], str]:
    """A page of a list that never changes: a token is the position after it."""
    size, key = page_size(request.page_size), read_token(request.page_token, int)
    start = max(0, key[0]) if key else 0
    rows = list(enumerate(known))[start : start + size + 1]
    return make_page(rows, size, lambda row: message(row[1]), lambda row: (row[0] + 1,))


def _model(source: Any, name: str, roots: Roots) -> catalog_pb2.ModelEntry:
    try:
        found = resolve_model(name, roots)
        with hidden(when=roots.discreet):
            size = KNOWN_SIZES.get(found.id) if isinstance(found, HubModel) else inspect_model(found)
    except InvalidReference as error:
        return catalog_pb2.ModelEntry(name=name, source=source, problem=roots.describe(str(error)))
    if size is None:
        return catalog_pb2.ModelEntry(name=name, source=source, problem="the folder has just gone")
    return catalog_pb2.ModelEntry(name=name, source=source, size=mapping.model_size(size))
