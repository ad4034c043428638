"""Statements that go past SQLAlchemy on SQLite give and raise what they do through it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, column, select, table
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from tests.unit.service.conftest import Jobs

from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.statements import Insert, Query, fetch_all, fetch_one
from mvprune_service.db.tables.jobs import JOBS, JobRow, UidRow
from mvprune_service.domain.machine import JobState

NAMED = select(JOBS).where(JOBS.c.job_id == bindparam("named"))


def add_copy(tx: Tx, row: Any, **values: Any) -> Any:
    return Insert(JobRow, JOBS)(tx.conn, row._asdict() | values)


async def test_rows_are_those_of_sqlalchemy(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    values = {
        "uid": "u",
        "job_id": "b",
        "labels": {"ü": '"'},
        "metrics": {"eval/f1": 0.5, "eval/loss": None},
        "progress": b"\x00\xff",
        "state": JobState.FAILED,
        "end_us": 1 << 52,
    }
    stored = await db.write(add_copy, await jobs.get(), **values)

    def both(conn: Connection) -> tuple[Any, Any]:
        return Query(JobRow, NAMED).first(conn, {"named": "b"}), conn.execute(NAMED, {"named": "b"}).one()

    found, wanted = await db.read(both)
    assert type(found) is type(stored) is JobRow
    assert found._asdict() == stored._asdict() == wanted._asdict()
    assert {name: getattr(found, name) for name in values} == values
    assert found.model_size is None


async def test_a_query_has_all_rows_or_none_and_constants_of_its_own(db: Database, jobs: Jobs) -> None:
    for name in ("a", "b", "c"):
        await jobs.create(name)
    queued = Query(UidRow, select(JOBS.c.uid).where(JOBS.c.state == JobState.QUEUED).order_by(JOBS.c.job_id).limit(2))
    assert await db.read(queued.all) == [((await jobs.get(name)).uid,) for name in "ab"]
    assert await db.read(Query(JobRow, NAMED).first, {"named": "nobody"}) is None


async def test_errors_are_those_of_sqlalchemy(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    row = await jobs.get()
    with pytest.raises(IntegrityError):
        await db.write(add_copy, row)
    with pytest.raises((OperationalError, ProgrammingError)):
        await db.read(Query(UidRow, select(column("uid")).select_from(table("nowhere"))).all)
    assert await jobs.get() == row


async def test_columns_in_another_order_are_refused(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    swapped = select(JOBS.c.project, JOBS.c.uid)
    for fetch in (fetch_all, fetch_one):
        with pytest.raises(TypeError, match=r"columns must be \('uid',\) for UidRow, got \('project', 'uid'\)"):
            await db.read(fetch, UidRow, swapped)
    with pytest.raises(TypeError):
        Query(UidRow, swapped)
    with pytest.raises(TypeError):
        Insert(UidRow, JOBS)
