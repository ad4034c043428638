"""A descent on a real server with real training, through kills of the server with all its workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from mvprune import Client, SearchStrategy, SweepPoint
from mvprune.runtime import load

from ..conftest import Tiny, server_path
from .servers import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "home")
    yield server
    server.close()


def _points(address: str) -> list[SweepPoint]:
    with Client(address) as client:
        return list(client.get_sweep("down").points())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_descent_that_is_killed_goes_on_with_the_run_that_was_lost(
    server: Server, tiny: Tiny, tmp_path: Path
) -> None:
    options = {"models": tiny.models, "roots": tiny.train.parent}
    server.start(**options)  # type: ignore[arg-type]
    with Client(server.address) as client:
        client.sweep(
            model="tiny-bert",
            train=server_path(tiny.train),
            validation=server_path(tiny.validation),
            method="obert",
            pattern="1x4",
            max_steps=40,
            batch_size=32,
            learning_rate=5e-3,
            max_loss=100.0,
            cpus=1,
            strategy=SearchStrategy(way="descent", min_density=0.2, tolerance=1.0),
            sweep_id="down",
        )
    for wanted in (2, 3, 4):  # while the dense model is measured in int8, and the first two densities are trained
        while len(_points(server.address)) < wanted or _points(server.address)[-1].state != "RUNNING":
            time.sleep(0.05)
        server.close()
        server.start(**options)  # type: ignore[arg-type]
    with Client(server.address) as client:
        sweep = client.get_sweep("down").wait(800)
        points = list(sweep.points())
        assert [point.cell["density"] for point in points] == [1.0, 1.0, 0.5, 0.316, 0.2]
        assert points[1].cell["activations"] == "int8"
        assert {"delta/accuracy", "delta_low/accuracy"} <= points[1].metrics.keys(), (
            "it is compared with the dense model"
        )
        assert all(point.state == "SUCCEEDED" for point in points)
        assert sweep.recommendation is not None
        assert sweep.recommendation.passed
        for point in points:
            client.download(point.artifact, tmp_path / str(point.number))
    states = [load(tmp_path / str(point.number)).state_dict() for point in points if point.number != 2]
    pruned = [name for name in states[0] if "encoder" in name and states[0][name].dim() == 2]
    for before, after in pairwise(states):
        assert not any(((after[name] != 0) & (before[name] == 0)).any() for name in pruned)
