"""mvpctl's catalogue and job files against a running server."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mvprune.cli import main
from mvprune.data.tasks import TASKS
from mvprune.sources.known_models import KNOWN_SIZES
from mvprune.sources.model_folder import inspect_model
from mvprune_service.assembly.service import Service
from mvprune_service.config import Settings
from mvprune_service.executors.base import ExecutorUnavailable
from mvprune_service.executors.local import LocalExecutor

from ..conftest import Tiny
from .servers import Data


@pytest.fixture
async def service(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A server that starts nothing: jobs stay in the queue."""

    def capacity(self: LocalExecutor) -> None:
        raise ExecutorUnavailable("away")

    monkeypatch.setattr(LocalExecutor, "capacity", capacity)
    shutil.copytree(tiny.model, tmp_path / "models" / "tiny-bert")
    settings = Settings(
        home=tmp_path / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        executor="local",
        models=tmp_path / "models",
        roots=(tmp_path,),
    )
    async with Service(settings) as service:
        monkeypatch.setenv("MVPRUNE_ADDRESS", service.address)
        yield service


async def mvpctl(*argv: str) -> int:
    return await asyncio.to_thread(main, list(argv))


async def test_the_catalogue(service: Service, tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    assert await mvpctl("models", "-o", "json") == 0
    models = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in models] == ["tiny-bert", *sorted(KNOWN_SIZES)]
    assert models[0]["size"]["prunable_weights"] == inspect_model(tiny.model).prunable_weights
    assert await mvpctl("tasks", "--quiet") == 0
    assert capsys.readouterr().out.split() == list(TASKS)
    assert await mvpctl("methods") == 0
    assert "--cooldown                 more than 0 to 1" in capsys.readouterr().out


async def test_a_job_file(service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Data.write(tmp_path)
    file = tmp_path / "jobs.yaml"
    text = "model: tiny-bert\ntrain: train.tsv\nvalidation: validation.tsv\ndensity: {}\nlabels: {{team: search}}\n"
    file.write_text(text.format("0.1") + "---\n" + text.format("0.2"))
    assert await mvpctl("submit", "-f", str(file), "--quiet") == 0
    first, second = capsys.readouterr().out.split()
    assert await mvpctl("list", "--label", "team=search", "--quiet") == 0
    assert set(capsys.readouterr().out.split()) == {first, second}

    # What the server refuses comes with the place in the file, or the option; nothing is submitted.
    file.write_text(
        text.format("0.3") + "---\n" + text.format("7") + "task: masked-lm\npriority: 1000\ntemperature: 3\n"
    )
    assert await mvpctl("submit", "-f", str(file), "--max-length", "3") == 2
    found = [line.removeprefix(f"error: {file}:") for line in capsys.readouterr().err.splitlines()]
    places = [re.split(": must be ", line)[0] for line in found]
    assert places == [
        "error: job.spec.training.max_length (--max-length)",  # once for each job
        "10:10: density",
        "error: job.spec.training.max_length (--max-length)",
        "7:1: job.spec.teacher (--teacher)",  # of the job that begins there
        "13:11: priority",
    ]
    assert await mvpctl("list", "--quiet") == 0
    assert set(capsys.readouterr().out.split()) == {first, second}
