"""kill -9 of the server at every commit boundary, twice in a row, with downtimes of 0, 1 and 3 lease times."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

import pytest

from .conftest import ROUNDS
from .harness import LEASE, Load, Server
from .invariants import check

# Writes by the name of the function that does them.
BOUNDARIES = {
    "create": "create",
    "schedule": "place",
    "submit": "submitted",
    "claim": "claim",
    "heartbeat": "heartbeats",
    "complete": "offer",
    "finalize": "publish",
    "cancel": "_change",
    "delete": "DeleteJob",
}
SIDES = ("before_commit", "after_commit")
DOWNTIMES = (0, LEASE, 3 * LEASE)
IN_A_ROW = 2


@pytest.mark.timeout(1200)
def test_at_every_commit_boundary(tmp_path: Path, new_database: Callable[..., str]) -> None:
    databases = [new_database(empty=True) for _ in DOWNTIMES]
    with ThreadPoolExecutor(len(DOWNTIMES)) as pool:
        runs = [
            pool.submit(campaign, Server(tmp_path / str(downtime), database=database), downtime)
            for downtime, database in zip(DOWNTIMES, databases, strict=True)
        ]
        for run in runs:
            run.result()


def campaign(server: Server, downtime: float) -> None:
    """Kills the server at every boundary while it is being used, then lets it finish."""
    boundaries = [f"{write}.{side}" for write, side in product(BOUNDARIES.values(), SIDES)]
    try:
        with Load(server) as load:
            for boundary in boundaries[: max(1, round(len(boundaries) * ROUNDS))] * max(1, int(ROUNDS)):
                for _ in range(IN_A_ROW):
                    time.sleep(downtime)
                    server.start(f"{boundary}=kill:1")
                    assert server.wait_killed(), f"{boundary} was never reached\n{server.tail()}"
                load.check()
            server.start()
            load.stop()
        states = check(server, load.records)
        assert states["SUCCEEDED"] > 0
        assert states["CANCELLED"] > 0
    finally:
        server.kill()
