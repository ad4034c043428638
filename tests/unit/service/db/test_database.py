"""Transactions, on SQLite and on PostgreSQL: what is whole, what is announced, what an outage looks like."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from prometheus_client import REGISTRY
from sqlalchemy import Connection, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from tests.waiting import PATIENCE, until_true

from mvprune_migrations import HEAD
from mvprune_service.db import overview
from mvprune_service.db.engine import sqlite
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.engine.statements import Query
from mvprune_service.db.tables.server import PROJECTS, ProjectRow

ADD = text("INSERT INTO projects (project, max_queued_jobs) VALUES (:project, 0)")


def add(tx: Tx, project: str) -> None:
    tx.conn.execute(ADD, {"project": project})
    tx.changed.add(project)


def count_up(tx: Tx) -> int:
    """Adds one under a lock, as everything that changes a job does."""
    held = tx.conn.execute(select(PROJECTS.c.max_queued_jobs).with_for_update()).scalar_one()
    tx.conn.execute(update(PROJECTS).values(max_queued_jobs=held + 1))
    return int(held + 1)


def projects(conn: Connection) -> list[str]:
    return list(conn.execute(text("SELECT project FROM projects ORDER BY project")).scalars())


async def test_writes_that_come_together_lose_nothing_and_are_counted(db: Database) -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("mvprune_database_commit_writes_sum") or 0

    before = counted()
    await db.write(add, "p")
    counts = await asyncio.gather(*(db.write(count_up) for _ in range(200)))
    assert sorted(counts) == list(range(1, 201))
    await until_true(lambda: counted() == before + 201)  # it is counted after callers have their answers


async def test_a_read_is_of_one_moment(db: Database) -> None:
    await db.write(add, "a")
    own = Query(ProjectRow, select(PROJECTS).order_by(PROJECTS.c.project))  # on SQLite it goes past SQLAlchemy
    first, second = threading.Event(), threading.Event()

    def twice(conn: Connection) -> tuple[list[str], list[str]]:
        before = [row.project for row in own.all(conn)]
        first.set()
        assert second.wait(PATIENCE)
        return before, projects(conn)

    reading = asyncio.create_task(db.read(twice))
    await asyncio.to_thread(first.wait)
    await db.write(add, "b")
    second.set()
    assert await reading == (["a"], ["a"])
    assert await db.read(projects) == ["a", "b"]


async def test_an_exception_undoes_the_write_and_announces_nothing(db: Database) -> None:
    announced: list[set[str] | None] = []
    db.on_commit = lambda uids, are_new: announced.append(uids)

    def fail(tx: Tx) -> None:
        add(tx, "a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await db.write(fail)
    await db.write(add, "b")
    with pytest.raises(IntegrityError):
        await db.write(add, "b")
    assert await db.read(projects) == ["b"]
    assert announced == [{"b"}]


async def test_a_caller_that_gives_up_does_not_take_the_announcement_with_it(db: Database) -> None:
    announced: asyncio.Queue[set[str] | None] = asyncio.Queue()
    db.on_commit = lambda uids, are_new: announced.put_nowait(uids)
    started, go = threading.Event(), threading.Event()

    def slow(tx: Tx) -> None:
        add(tx, "a")
        started.set()
        assert go.wait(PATIENCE)

    writing = asyncio.create_task(db.write(slow))
    await asyncio.to_thread(started.wait)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go.set()
    assert await asyncio.wait_for(announced.get(), PATIENCE) == {"a"}
    assert await db.read(projects) == ["a"]


async def test_a_mistake_in_a_statement_is_no_outage(db: Database) -> None:
    for work in (db.read(lambda conn: conn.execute(text("SELECT x FROM nowhere"))), db.write(_mistake)):
        with pytest.raises((OperationalError, ProgrammingError)):
            await work


def _mistake(tx: Tx) -> None:
    tx.conn.execute(text("SELECT x FROM nowhere"))


@pytest.fixture
def sqlite_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new SQLite database; nobody waits for its locks."""
    monkeypatch.setattr(sqlite, "_PRAGMAS", (*sqlite._PRAGMAS, "busy_timeout=0"))
    url = f"sqlite:///{tmp_path / 'x.sqlite'}"
    with closing(Database(url)) as db, db.engine.begin() as conn:
        conn.exec_driver_sql("CREATE TABLE projects (project TEXT PRIMARY KEY, max_queued_jobs INTEGER)")
    return url


@pytest.fixture
async def file_db(sqlite_url: str) -> AsyncIterator[Database]:
    db = Database(sqlite_url)
    yield db
    db.close()


async def test_a_locked_file_is_an_outage(file_db: Database) -> None:
    with closing(sqlite3.connect(str(file_db.engine.url.database), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseUnavailable):
            await file_db.write(add, "a")
        other.execute("ROLLBACK")
    await file_db.write(add, "a")
    assert await file_db.read(projects) == ["a"]


async def test_a_full_disk_is_an_outage_and_whoever_was_answered_is_kept(file_db: Database) -> None:
    def fill(tx: Tx, project: str) -> None:
        tx.conn.execute(text("PRAGMA max_page_count = 20"))
        add(tx, project + "x" * 9000)

    answers = []
    for group in range(10):
        names = [f"{group}{n}" for n in range(2)]
        got = await asyncio.gather(*(file_db.write(fill, name) for name in names), return_exceptions=True)
        answers += zip(names, got, strict=True)
    kept = [name for name, answer in answers if answer is None]
    assert {type(answer) for _, answer in answers} == {type(None), DatabaseUnavailable}
    assert [project[:2] for project in await file_db.read(projects)] == kept


async def test_whether_writes_are_taken_is_found_out_by_one(tmp_path: Path, sqlite_template: Path) -> None:
    file = tmp_path / "x.sqlite"
    copyfile(sqlite_template, file)

    def refuse(tx: Tx) -> None:
        tx.conn.execute(text("PRAGMA query_only = on"))

    with closing(Database(f"sqlite:///{file}")) as db:
        assert await db.write(overview.write)
        assert await db.read(overview.schema_revision) == HEAD
        await db.write(refuse)
        with pytest.raises(DatabaseUnavailable):
            await db.write(overview.write)


async def test_a_group_waits_for_the_last_ones_callers(file_db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.0)
    monkeypatch.setattr(sqlite, "_LONG", 3600.0)  # a write that is held is not a slow one
    held: list[tuple[threading.Event, threading.Event]] = [(threading.Event(), threading.Event()) for _ in range(2)]

    def hold(tx: Tx, turn: int) -> None:
        started, go = held[turn]
        started.set()
        assert go.wait(PATIENCE)

    first = asyncio.create_task(file_db.write(hold, 0))
    await asyncio.to_thread(held[0][0].wait)  # what comes now shares the next commit
    second = asyncio.gather(file_db.write(hold, 1), file_db.write(add, "a"))
    await asyncio.sleep(0)
    held[0][1].set()
    await asyncio.to_thread(held[1][0].wait)
    monkeypatch.setattr(sqlite, "_PATIENCE", 3600.0)
    held[1][1].set()
    await asyncio.gather(first, second)
    third = asyncio.create_task(file_db.write(add, "b"))
    for _ in range(5):
        await file_db.read(projects)
    assert not third.done()
    await asyncio.gather(third, file_db.write(add, "c"))
    monkeypatch.setattr(sqlite, "_PATIENCE", 0.0)
    await file_db.write(add, "d")  # nobody else comes: it takes what is there
    assert await file_db.read(projects) == ["a", "b", "c", "d"]


async def test_a_write_that_fails_leaves_those_it_shared_a_transaction_with_alone(file_db: Database) -> None:
    started, go = threading.Event(), threading.Event()
    tried: list[str] = []

    def hold(tx: Tx) -> None:
        started.set()
        assert go.wait(PATIENCE)

    def note(tx: Tx, project: str) -> None:
        tried.append(project)
        add(tx, project)

    def refuse(tx: Tx) -> None:
        raise ZeroDivisionError

    def fail(tx: Tx) -> None:
        add(tx, "failed")
        raise ZeroDivisionError

    async def write_together(*works: Any) -> list[Any]:
        started.clear()
        go.clear()
        holding = asyncio.create_task(file_db.write(hold))
        await asyncio.to_thread(started.wait)  # what comes now shares the next commit
        group = asyncio.gather(*(file_db.write(*work) for work in works), return_exceptions=True)
        await asyncio.sleep(0)
        go.set()
        await holding
        return [type(answer) for answer in await group]

    refused = await write_together((note, "a"), (refuse,), (add, "a"), (note, "b"))
    assert refused == [type(None), ZeroDivisionError, IntegrityError, type(None)]
    assert tried == ["a", "b"]  # once each: what failed had changed nothing
    failed = await write_together((note, "c"), (fail,), (note, "d"))
    assert failed == [type(None), ZeroDivisionError, type(None)]
    assert await file_db.read(projects) == ["a", "b", "c", "d"]


async def test_a_transaction_that_sqlite_gives_up_takes_the_whole_group_with_it(
    file_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a failing disk: the rollback is SQLite's own, in the middle of the group."""
    monkeypatch.setattr(sqlite, "_LONG", 3600.0)  # a long write would end its group, and on a busy machine any is
    started, go = threading.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        started.set()
        assert go.wait(PATIENCE)

    def give_up(tx: Tx) -> None:
        driver: Any = tx.conn.connection.driver_connection
        driver.execute("ROLLBACK")
        raise OperationalError("INSERT", None, sqlite3.OperationalError("disk I/O error"))

    holding = asyncio.create_task(file_db.write(hold))
    await asyncio.to_thread(started.wait)  # what comes now shares the next commit
    group = asyncio.gather(
        file_db.write(add, "a"), file_db.write(give_up), file_db.write(add, "b"), return_exceptions=True
    )
    await asyncio.sleep(0)
    go.set()
    await holding
    assert [type(answer) for answer in await group] == [DatabaseUnavailable] * 3
    assert await file_db.read(projects) == []
    await file_db.write(add, "c")
    assert await file_db.read(projects) == ["c"]


def test_a_database_closes_after_what_it_has_taken(new_database: Callable[..., str]) -> None:
    url = new_database()

    async def write() -> None:
        db = Database(url)
        writes = [asyncio.create_task(db.write(add, f"{n}")) for n in range(50)]
        await asyncio.sleep(0)
        await asyncio.to_thread(db.close)
        await asyncio.gather(*writes)

    asyncio.run(write())
    with closing(Database(url)) as db, db.engine.connect() as conn:
        assert len(projects(conn)) == 50
