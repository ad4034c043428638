"""kill -9 of trainers, supervisors and their keepers; a supervisor that is suspended until its lease is gone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Select, create_engine, select

from mvprune.v1 import job_pb2
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import read_marker

from .counts import COUNTS
from .harness import Client, Record, Server, eventually
from .invariants import check

pytestmark = pytest.mark.timeout(300)


class Plane:
    """A server with one job in training."""

    def __init__(self, folder: Path, milliseconds: int) -> None:
        self.server = Server(folder)
        self.server.start()
        self.client = Client(self.server)
        self.record = Record("r", self.client.create("r", milliseconds).name)
        eventually(lambda: self.job().progress.phase == "pruning", 60, self.server.tail)

    def job(self) -> job_pb2.Job:
        return self.client.get(self.record.name)

    def kill(self, pids: list[int]) -> None:
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        COUNTS["kills of workers"] += len(pids)

    def attempts(self) -> list[tuple[str, str]]:
        """uid and state of each."""
        return self._rows(select(ATTEMPTS.c.uid, ATTEMPTS.c.state).order_by(ATTEMPTS.c.number))

    def checkpoints(self) -> list[tuple[int]]:
        """Steps of those that are committed."""
        return self._rows(select(CHECKPOINTS.c.step))

    def log(self, attempt_uid: str) -> str:
        """What the supervisor of an attempt printed."""
        return (self.server.home / "processes" / "logs" / f"mvprune-{attempt_uid}.log").read_text()

    def _rows(self, query: Select[Any]) -> list[Any]:
        engine = create_engine(self.server.database)
        with engine.connect() as conn:
            rows = conn.execute(query).all()
        engine.dispose()
        return [tuple(row) for row in rows]


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[[int], Plane]]:
    started: list[Plane] = []

    def start(milliseconds: int) -> Plane:
        started.append(Plane(tmp_path, milliseconds))
        return started[-1]

    yield start
    for plane in started:
        plane.client.close()
        plane.server.kill()


def test_a_killed_trainer_is_replaced(train: Callable[[int], Plane]) -> None:
    plane = train(2_000)
    plane.kill(plane.server.trainers())
    eventually(lambda: plane.job().state_reason == "TRAINER_KILLED", 60, plane.server.tail)
    assert check(plane.server, [plane.record]) == {"SUCCEEDED": 1}
    assert [state for _, state in plane.attempts()] == ["FAILED", "SUCCEEDED"]


@pytest.mark.parametrize("with_its_keeper", [False, True])
def test_a_killed_supervisor_is_replaced(train: Callable[[int], Plane], with_its_keeper: bool) -> None:
    plane = train(2_000)
    plane.kill((plane.server.keepers() if with_its_keeper else []) + plane.server.supervisors())
    eventually(lambda: not plane.server.trainers(), 10, lambda: "the trainer outlived its supervisor")
    assert check(plane.server, [plane.record]) == {"SUCCEEDED": 1}
    assert [state for _, state in plane.attempts()] == ["LOST", "SUCCEEDED"]


def test_what_a_killed_supervisor_had_committed_is_resumed_from(train: Callable[[int], Plane]) -> None:
    plane = train(4_000)
    eventually(plane.checkpoints, 60, plane.server.tail)
    plane.kill(plane.server.supervisors())
    assert check(plane.server, [plane.record]) == {"SUCCEEDED": 1}
    _, (uid, _) = plane.attempts()
    assert "fetched the checkpoint of step 1, to resume from" in plane.log(uid)


def test_a_supervisor_that_wakes_up_too_late_publishes_nothing(train: Callable[[int], Plane]) -> None:
    plane = train(1_000)
    (sleeper,) = plane.server.supervisors()
    os.kill(sleeper, signal.SIGSTOP)
    (uid, _), *_ = plane.attempts()
    # As a Ray head does that was restarted: the executor has never heard of it.
    (plane.server.home / "processes" / "refs" / f"mvprune-{uid}").unlink()
    eventually(lambda: plane.job().state == job_pb2.Job.SUCCEEDED, 60, plane.server.tail)
    os.kill(sleeper, signal.SIGCONT)
    assert check(plane.server, [plane.record]) == {"SUCCEEDED": 1}
    assert [state for _, state in plane.attempts()] == ["LOST", "SUCCEEDED"]
    assert read_marker(open_store(plane.server.store), uid) is None
