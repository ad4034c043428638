"""A Ray head that is stopped and started in the middle of a job, and a Ray node that is lost with its worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from .counts import COUNTS
from .harness import TERMINAL, Client, Record, Server, eventually
from .invariants import check
from .ray_nodes import RayNodes


@pytest.mark.timeout(600)
def test_the_head_and_then_a_node_are_lost(tmp_path: Path) -> None:
    with RayNodes(tmp_path / "ray.log") as ray:
        assert ray.nodes() == ()  # the head has no CPUs
        ray.start_node()
        server = Server(tmp_path, executor="ray", ray_address=ray.address)
        server.start(environment={"RAY_AUTH_TOKEN": ray.token})
        client = Client(server)

        def submit(name: str, milliseconds: int) -> Record:
            return Record(name, client.create(name, milliseconds, resources={"cpus": 1.0}).name)

        def is_training(record: Record) -> bool:
            return bool(client.get(record.name).progress.phase == "pruning")

        try:
            first = submit("head", 8_000)
            eventually(lambda: is_training(first), 120, server.tail)
            ray.kill("head")
            COUNTS["Ray heads lost"] += 1
            ray.start_head()  # it knows nothing of the job, whose worker goes on
            eventually(lambda: client.get(first.name).state in TERMINAL, 120, server.tail)
            ray.kill("node")
            ray.start_node()
            second = submit("node", 5_000)
            eventually(lambda: is_training(second), 120, server.tail)
            ray.kill("node")
            COUNTS["Ray nodes lost"] += 1
            ray.start_node()
            assert check(server, [first, second], timeout=240) == {"SUCCEEDED": 2}
            assert client.get(second.name).attempt > 1
        finally:
            client.close()
            server.kill()
