"""The whole control plane against a world that lies, forgets and stops: a stateful model on a clock of its own.

In each example hypothesis makes up what happens and in which order: steps of two servers' loops, whole or write by
write, calls of users and workers, crashes, faults. The invariants are checked after every write. In the end the world
is healed, and every job must end. The same on SQLite, faster and with more faults, is in tests/simulation.
MVPRUNE_MODEL_EXAMPLES: how many examples (then new ones with every run).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from mvprune.v1 import job_pb2
from mvprune_service.db import attempt_logs
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.schema import METADATA
from mvprune_service.db.tables.server import INSTALLATION

from .model_gate import Fault
from .model_worker import ACTIONS
from .model_world import CHANGES, COMMANDS, LOOPS, PLANES, World

EXAMPLES = os.environ.get("MVPRUNE_MODEL_EXAMPLES")
_DEFAULT_EXAMPLES = 4
_STEPS = 50

_numbers = st.integers(0, 7)
_MISSED = {"metric": "bytes", "max": 1}  # a gate that no result passes
_seconds = st.none() | st.sampled_from((5, 60)).map(lambda seconds: {"seconds": seconds})


@st.composite
def jobs(draw: Callable[[st.SearchStrategy[Any]], Any]) -> job_pb2.CreateJobRequest:
    """A job with some of what its policy can ask for. Names are given again when their job is deleted."""
    spec = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", target_density=0.1, movement={})
    spec.training.batch_size = 4
    teacher = draw(st.sampled_from((None, None, None, "train", "job")))
    if teacher == "train":
        spec.teacher.train = True
    elif teacher == "job":
        spec.teacher.job = f"job-{draw(_numbers)}"
    policy = job_pb2.ExecutionPolicy(
        resources={"cpus": draw(st.sampled_from((1.0, 2.0)))},
        max_attempts=draw(st.integers(1, 4)),
        start_timeout={"seconds": 60},
        priority=draw(st.integers(-1, 1)),
        max_runtime=draw(st.none() | _seconds),
        max_queue_time=draw(st.none() | _seconds),
        retention=draw(st.none() | st.just({"seconds": 60})),
        gates=draw(st.sampled_from(([], [], [_MISSED], [_MISSED | {"fail_job": True}]))),
    )
    job_id = f"job-{draw(_numbers)}"
    return job_pb2.CreateJobRequest(parent="projects/p", job_id=job_id, job=job_pb2.Job(spec=spec, policy=policy))


_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "plane": st.integers(0, PLANES - 1),
    "which": _numbers,
    "choice": _numbers,
    "loop": st.sampled_from(LOOPS),
    "action": st.sampled_from(ACTIONS),
    "command": st.sampled_from(COMMANDS),
    "change": st.sampled_from(CHANGES),
    "request": jobs(),
    "faults": st.just([]) | st.lists(st.sampled_from(Fault), max_size=3),
    "leave": st.booleans(),
}
# What can happen: methods of the world, how often, and with what.
_HAPPENINGS = {
    "rest": (1, ()),
    "create": (2, ("plane", "request", "faults")),
    "ask": (6, ("plane", "which", "command", "choice", "faults")),
    "round": (6, ("plane",)),
    "lose": (3, ("plane",)),
    "step": (10, ("plane", "loop", "faults", "leave")),
    "work": (10, ("plane", "which", "action", "choice", "faults", "leave")),
    "all_work": (6, ("plane", "action", "choice")),
    "go_on": (4, ("which", "faults")),
    "crash": (1, ("plane",)),
    "turn": (4, ("change",)),
}


def _with(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries({field: _FIELDS[field] for field in _HAPPENINGS[name][1]}))


happenings = st.sampled_from([name for name, (often, _) in _HAPPENINGS.items() for _ in range(often)]).flatmap(_with)


@pytest.fixture(autouse=True)
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs of the model are long."""
    for name, size in (("KEPT_BYTES", 4), ("LONG_BYTES", 8), ("CHUNK_BYTES", 16)):
        monkeypatch.setattr(attempt_logs, name, size)


@pytest.mark.slow
@pytest.mark.parametrize("new_database", ["postgresql"], indirect=True)
def test_no_job_is_lost_whatever_happens(new_database: Callable[..., str]) -> None:
    url = new_database()

    @settings(
        max_examples=int(EXAMPLES or _DEFAULT_EXAMPLES),
        derandomize=not EXAMPLES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(jobs(), min_size=2, max_size=5), st.lists(happenings, min_size=_STEPS, max_size=_STEPS))
    def example(requests: list[job_pb2.CreateJobRequest], story: list[tuple[str, dict[str, Any]]]) -> None:
        empty(db.engine)
        with TemporaryDirectory(prefix="mvprune-model-") as folder:
            asyncio.run(_tell(url, Path(folder), requests, story))

    with closing(Database(url)) as db:
        example()


async def _tell(
    url: str, folder: Path, requests: list[job_pb2.CreateJobRequest], story: list[tuple[str, dict[str, Any]]]
) -> None:
    async with aclosing(World(url, folder)) as world:
        for request in requests:
            await world.create(0, request, ())
        for name, values in story:
            if name != "rest":
                note(f"{name} {values}")
            await getattr(world, name)(**values)
        await world.heal()


def empty(engine: Engine) -> None:
    """Removes all rows but the database's identity."""
    with engine.begin() as conn:
        for table in reversed(METADATA.sorted_tables):
            if table is not INSTALLATION:  # the database's identity, made with its schema
                conn.execute(table.delete())
