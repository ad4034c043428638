"""Statements that go past SQLAlchemy on SQLite give and raise what they do through it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, column, select, table
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from tests.unit.service.conftest import Jobs

from mvprune_service.db.database import Database, Tx
from mvprune_service.db.models import JOBS
from mvprune_service.db.statements import Insert, Query
from mvprune_service.domain.machine import JobState

NAMED = select(JOBS).where(JOBS.c.job_id == bindparam("named"))


def add_copy(tx: Tx, row: Any, **values: Any) -> Any:
    return Insert(JOBS)(tx.conn, row._asdict() | values)


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
        return Query(NAMED).first(conn, {"named": "b"}), conn.execute(NAMED, {"named": "b"}).one()

    found, wanted = await db.read(both)
    assert found._asdict() == stored._asdict() == wanted._asdict()
    assert {name: getattr(found, name) for name in values} == values
    assert found.model_size is None


async def test_a_query_has_all_rows_or_none_and_constants_of_its_own(db: Database, jobs: Jobs) -> None:
    for name in ("a", "b", "c"):
        await jobs.create(name)
    queued = Query(select(JOBS.c.job_id).where(JOBS.c.state == JobState.QUEUED).order_by(JOBS.c.job_id).limit(2))
    assert [row.job_id for row in await db.read(queued.all)] == ["a", "b"]
    assert await db.read(Query(NAMED).first, {"named": "nobody"}) is None


async def test_errors_are_those_of_sqlalchemy(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    row = await jobs.get()
    with pytest.raises(IntegrityError):
        await db.write(add_copy, row)
    with pytest.raises((OperationalError, ProgrammingError)):
        await db.read(Query(select(column("x")).select_from(table("nowhere"))).all)
    assert await jobs.get() == row
