"""An attempt of two parts, each with one rank, on a real Ray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mvprune_service.stores.layout import verify
from mvprune_workers.exits import ExitCode

from ...chaos.ray_nodes import RayNodes
from .test_real_trainer import real_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    with RayNodes(tmp_path_factory.mktemp("ray") / "ray.log", stand_in=False, head_cpus=2, quick=False) as nodes:
        yield nodes


def start(worker: Any, tiny: Any, ray: RayNodes) -> None:
    """Starts an attempt of two parts."""
    worker.cpus = "1"
    roots = {"MVPRUNE_MODELS": str(tiny.models), "MVPRUNE_DATA": str(tiny.train.parent)}
    worker.start_real_with({**roots, **ray.environment, "MVPRUNE_WORKERS": "2", "MVPRUNE_PARTS": "2"})


def test_two_parts_make_an_artifact(worker: Any, tiny: Any, ray: RayNodes) -> None:
    worker.service.spec = real_job(tiny)
    start(worker, tiny, ray)
    assert worker.wait() is ExitCode.PUBLISHED, worker.service.log.decode()
    [outcome] = worker.service.outcomes
    manifest = verify(worker.store, outcome.manifest_sha256)
    assert "2 ranks train together; another number of ranks gives the same result up to rounding" in manifest["notes"]
    worker.assert_clean()
