"""Jobs on two nodes of a Ray cluster, one of which is lost: a job of two ranks, and a rung of a descent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cluster_demo
import pytest
from demo import server
from demo_data import DemoInputs

from mvprune import Client, SearchStrategy

from ..conftest import server_path
from .counts import COUNTS
from .harness import eventually
from .ray_nodes import RayNodes


@pytest.mark.timeout(1800)
def test_ranks_on_two_nodes_resume_with_the_same_result(
    tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # the demo sets it
    inputs = DemoInputs(tiny.model, tiny.train, tiny.validation)
    assert cluster_demo.demonstrate(inputs, tiny.models.parent, tmp_path / "demo", steps=2000)
    COUNTS["Ray nodes lost"] += 1


@pytest.mark.timeout(1800)
def test_a_rung_of_a_descent_whose_node_is_lost_goes_on_on_the_other(
    tmp_path: Path, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RayNodes(tmp_path / "ray.log", stand_in=False, quick=False) as ray:
        for name in cluster_demo.NODES:
            ray.start_node("--num-cpus=1", name=name)
        monkeypatch.setenv("RAY_AUTH_TOKEN", ray.token)  # the server sends it
        options = ("--roots", tiny.models.parent, "--executor", "ray", "--ray-address", ray.address)
        with server(tmp_path / "home", tmp_path / "server.log", *options) as address, Client(address) as client:
            client.sweep(
                model=f"server:{tiny.model}",
                train=server_path(tiny.train),
                validation=server_path(tiny.validation),
                method="obert",
                pattern="1x4",
                max_steps=2400,
                batch_size=32,
                max_loss=100.0,
                gpus=0,
                cpus=1,
                strategy=SearchStrategy(way="descent", min_density=0.3, tolerance=1.0),
                sweep_id="down",
            )

            def trains(number: int) -> Callable[[], bool]:
                def reached() -> bool:
                    found = client.get_sweep("down").points()
                    progress = [client.get(point.job).progress for point in found if point.number == number]
                    return bool(progress and progress[0] and progress[0].phase == "pruning")

                return reached

            eventually(trains(3), 600, (tmp_path / "server.log").read_text)  # after the dense model, and that in int8
            (busy,) = [name for name in cluster_demo.NODES if cluster_demo.trains(ray.processes(name))]
            ray.kill(busy)
            sweep = client.get_sweep("down").wait(1200)
            jobs = [client.get(point.job) for point in sweep.points()]
    assert [job.state for job in jobs] == ["SUCCEEDED"] * 4
    assert [job.attempt for job in jobs] == [1, 1, 2, 1], "the rung whose node was lost had a second attempt"
    assert sweep.recommendation is not None
    assert sweep.recommendation.passed
    COUNTS["Ray nodes lost"] += 1
