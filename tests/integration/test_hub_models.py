"""Models of the Hub, hf://OWNER/NAME@REVISION: pinned when a job is submitted, and fetched at that commit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from mvprune import AsyncClient, InvalidArgument
from mvprune.artifact import read_manifest
from mvprune_service.assembly.service import Service
from mvprune_service.executors.processes import kill_marked

from ..conftest import Tiny, server_path
from ..hub import Hub, Repository, running_hub
from .plane import Plane, local_settings


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running_hub() as hub:
        for name, value in {**hub.environment, "HF_HOME": str(tmp_path / "hf")}.items():
            monkeypatch.setenv(name, value)
        yield hub


@pytest.fixture
def base(hub: Hub, tiny: Tiny) -> Repository:
    return hub.add("me/base", tiny.model)


@pytest.fixture
async def client(tmp_path: Path, tiny: Tiny, hub: Hub) -> AsyncIterator[AsyncClient]:
    settings = local_settings(tmp_path, tiny).model_copy(update={"hub_models": ("me/*",)})
    async with Service(settings) as service, aclosing(Plane(service, tiny)), AsyncClient(service.address) as client:
        yield client
    kill_marked("MVPRUNE_SCRATCH", str(settings.home / "scratch"))


def _data(tiny: Tiny) -> dict[str, str]:
    return {"train": server_path(tiny.train), "validation": server_path(tiny.validation)}


async def test_a_revision_is_pinned_when_a_job_is_checked(
    client: AsyncClient, base: Repository, hub: Hub, tiny: Tiny
) -> None:
    commit = base.branches["main"][-1].id
    for given in ("hf://me/base", "hf://me/base@main"):
        job = await client.submit(model=given, density=0.1, validate_only=True, **_data(tiny))
        assert job.spec.model == f"hf://me/base@{commit}"
        assert any(commit in note for note in job.notes)
    asked = len(hub.calls)
    job = await client.submit(model=f"hf://me/base@{'a' * 40}", density=0.1, validate_only=True, **_data(tiny))
    assert job.spec.model.endswith("a" * 40)
    assert len(hub.calls) == asked, "a commit needs no look at the Hub"

    sweep = await client.sweep(
        axes={"model": ["hf://me/base", "tiny-bert"], "density": [0.1]}, validate_only=True, **_data(tiny)
    )
    assert sweep.spec.axes[0].values == (f"hf://me/base@{commit}", "tiny-bert")


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("hf://other/base", "the model must be one that this server allows"),
        ("other/base", "the model must be one that this server allows"),
        ("hf://me/none", "must be one of the Hub that this server can read, got 'me/none' at 'main'"),
        ("hf://me/base@none", "must be one of the Hub that this server can read, got 'me/base' at 'none'"),
        ("hf://base", "must be hf://OWNER/NAME or hf://OWNER/NAME@REVISION, got 'hf://base'"),
        ("hf://me/base@", "must be hf://OWNER/NAME or hf://OWNER/NAME@REVISION, got 'hf://me/base@'"),
        ("hf://me/base@../../x", "the revision must be a branch, a tag or a commit"),
    ],
)
async def test_what_cannot_be_pinned_is_refused(
    client: AsyncClient, base: Repository, tiny: Tiny, model: str, words: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        await client.submit(model=model, density=0.1, validate_only=True, **_data(tiny))
    (violation,) = refused.value.violations
    assert violation.field == "job.spec.model"
    assert words in violation.description


async def test_a_hub_that_does_not_answer_needs_a_commit(
    client: AsyncClient, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(InvalidArgument, match="the Hub does not answer; give 40 hex digits after @"):
        await client.submit(model="hf://me/base", density=0.1, validate_only=True, **_data(tiny))
    with pytest.raises(InvalidArgument, match="unset beside hf://"):
        await client.submit(
            model=f"hf://me/base@{'a' * 40}", model_revision="v1", density=0.1, validate_only=True, **_data(tiny)
        )


@pytest.mark.slow
async def test_the_job_trains_what_the_commit_had(
    client: AsyncClient, base: Repository, tiny: Tiny, tmp_path: Path
) -> None:
    commit = base.branches["main"][-1]
    options = {"max_steps": 10, "batch_size": 16, "method": "movement", "cpus": 1}
    job = await client.submit(model="hf://me/base", density=0.2, **_data(tiny), **options)  # type: ignore[arg-type]
    base.branches["main"].append(replace(commit, id="b" * 40, files={}))  # what comes later is of no account
    await job.wait(240)
    manifest = read_manifest(await job.download(tmp_path / "out"))
    assert (manifest.model.name, manifest.model.revision) == ("me/base", commit.id)
