"""What a server says it knows: models under its roots, tasks, methods."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.conftest import Tiny

from mvprune.data.tasks import TASKS
from mvprune.sources.known_models import KNOWN_SIZES
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import Roots
from mvprune.v1 import catalog_pb2, catalog_pb2_grpc, job_pb2
from mvprune_service.api.catalog import CatalogServicer

SERVER, HUB = catalog_pb2.ModelEntry.SERVER, catalog_pb2.ModelEntry.HUB


@pytest.fixture
async def stub(tiny: Tiny, tmp_path: Path) -> AsyncIterator[Any]:
    """A catalogue with a models root, a data root and a further one."""
    models, data, more = (tmp_path / name for name in ("models", "data", "more"))
    shutil.copytree(tiny.model, models / "tiny-bert")
    shutil.copytree(tiny.model, models / "owner" / "name")
    shutil.copytree(tiny.model, models / ".cache" / "hidden")
    shutil.copytree(tiny.model, models / os.fsdecode(b"not-utf-8-\xff"))
    shutil.copytree(tiny.model, models / "new\nline")
    shutil.copytree(tiny.model, more / "mine")
    (models / "link").symlink_to(tiny.model)
    pickled = models / "pickled"
    pickled.mkdir()
    shutil.copy(tiny.model / "config.json", pickled)
    (pickled / "pytorch_model.bin").write_bytes(b"\x80\x04")
    (models / "no-model").mkdir()
    (models / "no-model" / "config.json").write_text("{}")
    (data / "SST-2").mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        (data / "SST-2" / name).write_text("sentence\tlabel\ngood\t1\n")
    server = grpc.aio.server()
    servicer = CatalogServicer(Roots(models=models, data=data, allowed=(more,)))
    catalog_pb2_grpc.add_CatalogServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield catalog_pb2_grpc.CatalogServiceStub(channel)
    await server.stop(None)


async def entries(method: Any, request: Any, field: str) -> list[Any]:
    """All pages."""
    found: list[Any] = []
    while True:
        page = await method(request)
        found += getattr(page, field)
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_models_under_the_roots_and_of_the_hub(stub: Any, tiny: Tiny, tmp_path: Path) -> None:
    models = await entries(stub.ListModels, catalog_pb2.ListModelsRequest(), "models")
    here = {model.name: model for model in models if model.source == SERVER}
    assert set(here) == {"tiny-bert", "owner/name", "pickled", str(tmp_path / "more" / "mine")}
    size = inspect_model(tiny.model)
    for name in {"tiny-bert", "owner/name", str(tmp_path / "more" / "mine")}:
        assert (here[name].size.base_parameters, here[name].size.prunable_weights) == (
            size.base_parameters,
            size.prunable_weights,
        )
        assert not here[name].problem
    assert not here["pickled"].HasField("size")
    assert "the pickle" in here["pickled"].problem
    hub = {model.name: model.size.prunable_weights for model in models if model.source == HUB}
    assert hub == {name: size.prunable_weights for name, size in KNOWN_SIZES.items()}


@pytest.mark.parametrize(
    ("method", "request_type", "field"),
    [
        ("ListModels", catalog_pb2.ListModelsRequest, "models"),
        ("ListTasks", catalog_pb2.ListTasksRequest, "tasks"),
        ("ListMethods", catalog_pb2.ListMethodsRequest, "methods"),
    ],
)
async def test_pages_hold_the_same_as_the_whole(stub: Any, method: str, request_type: Any, field: str) -> None:
    whole = await entries(getattr(stub, method), request_type(page_size=500), field)
    for size in (1, 2, 5):
        assert await entries(getattr(stub, method), request_type(page_size=size), field) == whole
    assert len(whole) == len({entry.name for entry in whole}) > 5


async def test_tasks(stub: Any) -> None:
    tasks = {task.name: task for task in await entries(stub.ListTasks, catalog_pb2.ListTasksRequest(), "tasks")}
    assert list(tasks) == list(TASKS)
    assert [name for name, task in tasks.items() if task.has_data] == ["sst2"]
    assert (tasks["squad"].kind, tasks["squad"].primary_metric) == ("question-answering", "f1")
    assert list(tasks["squad"].metrics) == ["exact_match", "f1"]
    assert not tasks["wikitext-2"].higher_is_better
    assert tasks["text-classification"].hub_id == ""


async def test_methods(stub: Any) -> None:
    methods = {one.name: one for one in await entries(stub.ListMethods, catalog_pb2.ListMethodsRequest(), "methods")}
    assert list(methods) == [field.name for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields]
    options = {option.name: option for option in methods["movement"].options}
    assert options["pruning_start"].field == "schedule.pruning_start"
    assert (options["pruning_start"].min, options["pruning_start"].max, options["pruning_start"].above_min) == (
        0,
        1,
        False,
    )
    assert options["cooldown"].above_min
    assert list(options["selection"].words) == ["local", "global"]
    assert list(options["initial_scores"].words) == ["zero", "magnitude"]
    for method in methods.values():
        assert method.description
        for option in method.options:
            assert option.description
            is_text = option.name in ("mask_from", "mask_revision")
            assert is_text + bool(option.words) + option.HasField("max") == 1, "words, bounds or a text"


async def test_a_token_of_another_list_is_refused() -> None:
    from mvprune_service.api.access.errors import ApiError

    with pytest.raises(ApiError, match="page_token"):
        await CatalogServicer(Roots()).ListTasks(catalog_pb2.ListTasksRequest(page_token="bm9uZQ=="), None)  # type: ignore[arg-type]
