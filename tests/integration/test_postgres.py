"""What only PostgreSQL can do to us: conflicts, connections that are lost at any moment, a server that goes away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, event, select, text, update
from sqlalchemy.exc import InternalError

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service.api.submissions import Submissions
from mvprune_service.db.engine import postgres as backend
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.tables.server import PROJECTS

from ..neighbours import PostgresServer
from ..waiting import PATIENCE, until_true

PID = text("SELECT pg_backend_pid()")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    made = postgres.create()
    yield made
    postgres.drop(made)


@pytest.fixture
async def db(url: str) -> AsyncIterator[Database]:
    made = Database(url)
    yield made
    made.close()


@pytest.fixture
async def replica(url: str) -> AsyncIterator[Database]:
    """Another process's view of the same database."""
    made = Database(url)
    yield made
    made.close()


class Ears:
    """Hears what a database announces."""

    def __init__(self, db: Database) -> None:
        self.heard: asyncio.Queue[set[str] | None] = asyncio.Queue()
        db.on_commit = lambda uids, are_new: self.heard.put_nowait(uids)

    async def next(self) -> set[str] | None:
        return await asyncio.wait_for(self.heard.get(), PATIENCE)


def add(tx: Tx, project: str) -> None:
    tx.conn.execute(PROJECTS.insert().values(project=project, max_queued_jobs=0))
    tx.changed.add(project)


async def no_capacity() -> None:
    """No executor answers."""


def tell(tx: Tx, uids: set[str]) -> None:
    tx.changed |= uids


def projects(conn: Connection) -> list[str]:
    return list(conn.execute(select(PROJECTS.c.project).order_by(PROJECTS.c.project)).scalars())


def kill_own(postgres: PostgresServer, conn: Connection) -> None:
    """Ends the connection from the server's side."""
    postgres.execute(f"SELECT pg_terminate_backend({conn.execute(PID).scalar_one()}, 5000)")


async def test_a_connection_lost_before_the_commit_costs_nothing(db: Database, postgres: PostgresServer) -> None:
    runs = []

    def work(tx: Tx) -> None:
        add(tx, "a")
        runs.append(1)
        if len(runs) == 1:
            kill_own(postgres, tx.conn)
            tx.conn.execute(PID)

    await db.write(work)
    assert len(runs) == 2
    assert await db.read(projects) == ["a"]

    def reading(conn: Connection) -> list[str]:
        runs.append(1)
        if len(runs) == 3:
            kill_own(postgres, conn)
        return projects(conn)

    assert await db.read(reading) == ["a"]
    assert len(runs) == 4


@pytest.mark.parametrize("is_committed", [True, False])
async def test_a_connection_lost_at_the_commit_is_not_tried_again(
    db: Database, postgres: PostgresServer, is_committed: bool
) -> None:
    """Nobody can tell whether it was committed, so nobody may say either."""
    runs = []

    def work(tx: Tx) -> None:
        runs.append(1)
        add(tx, "a")

    @event.listens_for(db.engine, "commit")
    def lose(conn: Connection) -> None:
        driver: Any = conn.connection.driver_connection
        pid = driver.info.backend_pid
        if is_committed:
            driver.execute("COMMIT")
            driver.execute("BEGIN")  # the driver still waits for an answer, as it would
        postgres.execute(f"SELECT pg_terminate_backend({pid}, 5000)")

    with pytest.raises(DatabaseUnavailable, match="the answer to a commit was lost"):
        await db.write(work)
    event.remove(db.engine, "commit", lose)
    assert len(runs) == 1
    assert await db.read(projects) == (["a"] if is_committed else [])


async def test_a_deadlock_is_resolved_and_both_are_done(db: Database) -> None:
    for project in "ab":
        await db.write(add, project)
    both = threading.Barrier(2)
    runs = []

    def both_rows(tx: Tx, first: str, second: str) -> None:
        runs.append(1)
        tx.conn.exec_driver_sql("SET LOCAL lock_timeout = 0")  # a deadlock is found, however slow the other one is
        for project in (first, second):
            row = update(PROJECTS).where(PROJECTS.c.project == project)
            tx.conn.execute(row.values(max_queued_jobs=PROJECTS.c.max_queued_jobs + 1))
            if project == first and len(runs) <= 2:
                both.wait(PATIENCE)

    await asyncio.gather(db.write(both_rows, "a", "b"), db.write(both_rows, "b", "a"))
    assert len(runs) >= 3  # who tries again may come first and be in the other's way once more
    counts = await db.read(lambda conn: list(conn.execute(select(PROJECTS.c.max_queued_jobs)).scalars()))
    assert counts == [2, 2]


@pytest.mark.parametrize(("patience", "tries"), [(60.0, 1 + len(backend._PAUSES)), (0.0, 1)])
async def test_a_conflict_that_lasts_is_given_up(
    db: Database, monkeypatch: pytest.MonkeyPatch, patience: float, tries: int
) -> None:
    monkeypatch.setattr(backend, "_PATIENCE", patience)
    runs = []

    def conflict(tx: Tx) -> None:
        runs.append(1)
        tx.conn.execute(text("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"))

    with pytest.raises(DatabaseUnavailable):
        await db.write(conflict)
    assert len(runs) == tries


@pytest.mark.parametrize(
    "statement",
    [
        "SET LOCAL statement_timeout = '10ms'; SELECT pg_sleep(10)",
        "SET LOCAL idle_in_transaction_session_timeout = '1ms'; SELECT 1",
        "DO $$ BEGIN RAISE SQLSTATE '53100'; END $$",  # a full disk
        "DO $$ BEGIN RAISE SQLSTATE '53300'; END $$",  # too many connections
        "SET LOCAL transaction_read_only = on; INSERT INTO projects (project) VALUES ('x')",
    ],
)
async def test_a_server_that_cannot_is_away(db: Database, statement: str) -> None:
    runs = []

    def work(tx: Tx) -> None:
        runs.append(1)
        tx.conn.exec_driver_sql(statement)
        if "idle" in statement:
            threading.Event().wait(0.2)  # the time-out is on the server's clock
            tx.conn.execute(PID)

    with pytest.raises(DatabaseUnavailable):
        await db.write(work)
    assert len(runs) == (1 + len(backend._PAUSES) if "idle" in statement else 1)
    assert await db.read(projects) == []


async def test_a_lock_that_another_holds_for_long_is_an_outage(db: Database, replica: Database) -> None:
    await db.write(add, "a")
    held, go = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        tx.conn.execute(select(PROJECTS).with_for_update())
        held.set()
        assert go.wait(PATIENCE)

    def want(tx: Tx) -> None:
        tx.conn.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")
        tx.conn.execute(select(PROJECTS).with_for_update())

    holding = asyncio.create_task(replica.write(hold))
    await asyncio.to_thread(held.wait)
    with pytest.raises(DatabaseUnavailable):
        await db.write(want)
    go.set()
    await holding
    await db.write(want)


async def test_jobs_that_wait_for_their_queue_keep_out_no_other_write(db: Database, replica: Database) -> None:
    submissions = Submissions(db, Roots(), no_capacity, quota=QueueQuota(100))
    held, go = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        QueueQuota(100).check(tx.conn, "p")
        held.set()
        assert go.wait(PATIENCE)

    holding = asyncio.create_task(replica.write(hold))
    await asyncio.to_thread(held.wait)
    job = job_pb2.Job(spec={"model": "bert-base-uncased", "task": "sst2", "target_density": 0.1, "movement": {}})
    request = job_pb2.CreateJobRequest(parent="projects/p", job=job)
    creating = [asyncio.create_task(submissions.create(request)) for _ in range(20)]
    await asyncio.wait(creating, timeout=0.5)  # they have come as far as they do
    await asyncio.wait_for(db.write(add, "a"), PATIENCE)
    assert not any(one.done() for one in creating)
    go.set()
    await holding
    assert len({job.name for job in await asyncio.gather(*creating)}) == 20
    submissions.close()


async def test_what_fails_while_the_server_is_closing_is_not_tried_again(url: str, postgres: PostgresServer) -> None:
    db, runs = Database(url), list[int]()
    started, go = threading.Event(), threading.Event()

    def work(tx: Tx) -> None:
        runs.append(tx.conn.execute(PID).scalar_one())
        started.set()
        assert go.wait(PATIENCE)
        kill_own(postgres, tx.conn)

    writing = asyncio.create_task(db.write(work))
    await asyncio.to_thread(started.wait)
    closing = asyncio.create_task(asyncio.to_thread(db.close))
    await until_true(lambda: db._backend._closing.is_set())  # type: ignore[attr-defined]
    go.set()
    with pytest.raises(DatabaseUnavailable):
        await writing
    await closing
    assert len(runs) == 1


async def test_no_free_connection_is_an_outage(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db.engine.pool, "_timeout", 0.1)
    async with AsyncExitStack() as stack:
        for _ in range(db.engine.pool.size()):  # type: ignore[attr-defined]
            stack.enter_context(db.engine.connect())
        with pytest.raises(DatabaseUnavailable):
            await db.read(projects)
        with pytest.raises(DatabaseUnavailable):
            await db.write(add, "a")
    assert await db.read(projects) == []


async def test_reads_write_nothing(db: Database) -> None:
    with pytest.raises((InternalError, DatabaseUnavailable)):
        await db.read(lambda conn: conn.execute(PROJECTS.insert().values(project="a")))


async def test_a_server_that_goes_away_and_comes_back(
    db: Database, replica: Database, postgres: PostgresServer
) -> None:
    await db.write(add, "a")
    assert await replica.read(projects) == ["a"]
    ears = Ears(replica)
    replica.listen()
    assert await ears.next() is None
    postgres.stop()
    try:
        with pytest.raises(DatabaseUnavailable):
            await db.read(projects)
        with pytest.raises(DatabaseUnavailable):
            await db.write(add, "b")
    finally:
        postgres.start()
    assert await ears.next() is None, "it listens again, and says that it may have missed something"
    await db.write(add, "c")
    assert await db.read(projects) == ["a", "c"]
    assert await ears.next() == {"c"}
    await db.write(add, "d")
    assert await ears.next() == {"d"}


async def test_replicas_hear_of_each_others_changes_and_of_their_own_once(db: Database, replica: Database) -> None:
    own, others = Ears(db), Ears(replica)
    for each, ears in ((db, own), (replica, others)):
        each.listen()
        assert await ears.next() is None
    await db.write(add, "a")
    assert await own.next() == {"a"}
    assert await others.next() == {"a"}
    await replica.write(add, "b")
    assert await own.next() == {"b"}, "and not {'a'} again"
    assert await others.next() == {"b"}
    with pytest.raises(ZeroDivisionError):
        await db.write(lambda tx: (tell(tx, {"never"}), 1 / 0))
    await db.write(tell, {"c"})
    assert await others.next() == {"c"}
    assert own.heard.get_nowait() == {"c"}
    assert own.heard.empty()


async def test_thousands_of_changes_are_told(db: Database, replica: Database) -> None:
    ears = Ears(replica)
    replica.listen()
    assert await ears.next() is None
    uids = {f"{n:036}" for n in range(5000)}
    await db.write(tell, uids)
    heard: set[str] = set()
    while heard != uids:
        heard |= await ears.next() or set()


async def test_a_lost_listener_comes_back(db: Database, replica: Database, postgres: PostgresServer) -> None:
    ears = Ears(replica)
    replica.listen()
    assert await ears.next() is None
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mvprune listener'"
    )
    assert await ears.next() is None
    await db.write(tell, {"a"})
    assert await ears.next() == {"a"}


async def test_what_hangs_holds_nothing_for_long(db: Database) -> None:
    def limits(conn: Connection) -> list[str]:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_isolation")
        return [str(conn.exec_driver_sql(f"SHOW {name}").scalar_one()) for name in names]

    assert await db.read(limits) == ["30s", "5s", "15s", "repeatable read"]
    assert await db.write(lambda tx: limits(tx.conn)) == ["30s", "5s", "15s", "read committed"]
