"""A database of its own for each test, on a clock that the test turns."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import lifecycle, records
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.attempts import Live
from mvprune_service.executors.base import (
    Capacity,
    ExecutorUnavailable,
    Launch,
    LaunchRefused,
    Node,
    Observation,
    Phase,
    Refs,
)
from mvprune_service.ids import JobName
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore

from .plane import Plane


class TestClock:
    __test__ = False

    def __init__(self, now: int = 1_800_000_000 * SECOND) -> None:
        self.now = now

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def pass_seconds(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


class Call:
    """The context of a call that came with no metadata."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


class ScriptedExecutor:
    """An executor that shows what a real one cannot be made to show on demand: silence, loss, strange answers."""

    name = "scripted"
    description = "nothing"
    private_folders: tuple[Path, ...] = ()

    def __init__(self) -> None:
        self.launches: dict[str, Launch] = {}
        self.seen: dict[str, Observation] = {}
        self.stops: list[str] = []
        self.outputs: dict[str, bytes] = {}
        self.ended: dict[str, int] = {}
        self.away = False
        self.refuses: set[str] = set()
        self.room = Capacity((Node(4, 0, 8 << 30),))

    def _reach(self) -> None:
        if self.away:
            raise ExecutorUnavailable("away")

    def capacity(self) -> Capacity:
        self._reach()
        return self.room

    def submit(self, launch: Launch) -> None:
        self._reach()
        if launch.ref in self.refuses:
            raise LaunchRefused("refused: Bearer s3cr3t")
        self.launches.setdefault(launch.ref, launch)

    def observe(self, ref: str) -> Observation:
        if self.away:
            return Observation(Phase.UNKNOWN)
        return self.seen.get(ref, Observation(Phase.RUNNING if ref in self.launches else Phase.GONE))

    def stop(self, ref: str) -> None:
        self._reach()
        self.stops.append(ref)
        self.seen[ref] = Observation(Phase.EXITED, 143)

    def list(self, prefix: str) -> Refs:
        live = tuple(ref for ref in self.launches if ref.startswith(prefix) and ref not in self.ended)
        return Refs(live, {ref: end for ref, end in self.ended.items() if ref.startswith(prefix)})

    def output(self, ref: str) -> bytes:
        self._reach()
        return self.outputs.get(ref, b"")

    def forget(self, ref: str) -> None:
        self._reach()
        self.ended.pop(ref, None)

    def close(self) -> None:
        pass


@pytest.fixture
def own_logging() -> Iterator[None]:
    """What the test makes of the process's logging ends with it."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.basicConfig(level=level, handlers=handlers, force=True)


@pytest.fixture
def clock() -> TestClock:
    return TestClock()


@pytest.fixture
def executor() -> ScriptedExecutor:
    return ScriptedExecutor()


@pytest.fixture
async def db(new_database: Callable[..., str], clock: TestClock) -> AsyncIterator[Database]:
    database = Database(new_database(), clock)
    yield database
    database.close()


class Jobs:
    """Shorthand for what tests do to jobs."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def create(
        self, job_id: str = "a", max_attempts: int = 2, policy: job_pb2.ExecutionPolicy | None = None, **resources: Any
    ) -> str:
        full = job_pb2.ExecutionPolicy(max_attempts=max_attempts, resources=job_pb2.Resources(**resources))
        full.start_timeout.seconds = 60
        if policy is not None:
            full.MergeFrom(policy)
        spec = job_pb2.CompressionSpec(model="m", task="sst2")
        new = lifecycle.NewJob("p", job_id, spec, full, creator="test")

        def work(tx: Tx) -> str:
            return str(lifecycle.create(tx, new, actor="test").uid)

        return await self.db.write(work)

    async def get(self, job_id: str = "a") -> Any:
        return await self.db.read(records.job_named, JobName("p", job_id))

    async def live(self, job_id: str = "a") -> Live:
        return next(x for x in await self.db.read(records.live_attempts) if x.job.job_id == job_id)

    async def events(self, job_id: str = "a") -> list[str]:
        job = await self.get(job_id)
        rows = await self.db.read(records.events_of, job.uid, 0, 1000)
        assert [row.sequence for row in rows] == list(range(1, job.last_sequence + 1))
        return [row.type for row in rows]

    async def cancel(self, job_id: str = "a", grace: int = 10) -> None:
        def work(tx: Tx) -> None:
            job = lifecycle.lock_job_named(tx, JobName("p", job_id))
            assert job is not None
            lifecycle.cancel(tx, job, reason="", grace_us=grace * SECOND, actor="test")

        await self.db.write(work)


@pytest.fixture
def jobs(db: Database) -> Jobs:
    return Jobs(db)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    return open_store((tmp_path / "store").as_uri())


@pytest.fixture
def plane(db: Database, executor: ScriptedExecutor, store: BlobStore, clock: TestClock) -> Plane:
    return Plane(db, executor, store, clock)
