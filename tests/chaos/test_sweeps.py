"""kill -9 of the server while a sweep is expanded, is cancelled, and is read: no point is lost, and none is doubled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .conftest import ROUNDS
from .harness import Server
from .sweep_client import Reader, SweepClient, check_sweep, wait_ended

SIDES = ("before_commit", "after_commit")
_POINTS = 8


@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", SIDES)
def test_during_expansion(tmp_path: Path, new_database: Callable[..., str], side: str) -> None:
    server = Server(tmp_path, database=new_database(empty=True))
    client = SweepClient(server)
    try:
        server.start()
        client.create_sweep(_POINTS)
        server.kill()
        for number in (1, 1, 2, 3, 1, 5) * max(1, int(ROUNDS)):
            server.start(f"expand.{side}=kill:{number}")
            if not server.wait_killed(20):
                break
        server.kill()
        server.start()
        sweep = wait_ended(server)
        assert (sweep.state, sweep.counts.succeeded, sweep.counts.baselines) == (sweep.SUCCEEDED, _POINTS, 1)
        assert check_sweep(server, _POINTS) == {"SUCCEEDED": _POINTS}
    finally:
        client.close()
        server.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("boundary", ["_change", "expand"])
def test_during_cancellation(tmp_path: Path, new_database: Callable[..., str], boundary: str, side: str) -> None:
    server = Server(tmp_path, database=new_database(empty=True))
    client = SweepClient(server)
    try:
        server.start()
        client.create_sweep(_POINTS, milliseconds=3000)
        _wait_for_jobs(client)
        if boundary == "expand":
            client.cancel_sweep()
        server.kill()
        server.start(f"{boundary}.{side}=kill:1")
        if boundary == "_change":
            _start_when_killed(server, client)
        else:
            assert server.wait_killed(20), server.tail()
            server.start()
        sweep = wait_ended(server)
        assert sweep.state == sweep.CANCELLED
        states = check_sweep(server, _POINTS)
        assert states["CANCELLED"] + states["SUCCEEDED"] + sweep.counts.skipped == _POINTS
        client.retry_sweep()
        sweep = wait_ended(server)
        assert (sweep.state, sweep.counts.succeeded) == (sweep.SUCCEEDED, _POINTS)
        assert check_sweep(server, _POINTS) == {"SUCCEEDED": _POINTS}
    finally:
        client.close()
        server.kill()


@pytest.mark.timeout(600)
def test_while_it_is_read(tmp_path: Path, new_database: Callable[..., str]) -> None:
    server = Server(tmp_path, database=new_database(empty=True))
    client = SweepClient(server)
    try:
        server.start()
        client.create_sweep(_POINTS)
        reader = Reader(server, _POINTS)
        reader.start()
        for _ in range(max(1, round(4 * ROUNDS))):
            time.sleep(random.uniform(0.5, 2))
            server.kill()
            server.start()
        sweep = wait_ended(server)
        reader.finish()
        assert (sweep.state, sweep.counts.succeeded) == (sweep.SUCCEEDED, _POINTS)
        assert check_sweep(server, _POINTS) == {"SUCCEEDED": _POINTS}
        assert len(client.points()) == _POINTS
        assert reader.lists
    finally:
        client.close()
        server.kill()


def _wait_for_jobs(client: SweepClient) -> None:
    """Until some of its jobs are there."""
    deadline = time.monotonic() + 30
    while not any(point.job for point in client.points()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _start_when_killed(server: Server, client: SweepClient) -> None:
    """Cancels it, which kills the server; the client asks until the next server answers."""
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.cancel_sweep)
        assert server.wait_killed(20), server.tail()
        server.start()
        asked.result()
