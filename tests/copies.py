"""Copies of a database that is being served, as a dump makes them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from sqlalchemy import delete, insert, select

from mvprune_service.db.engine.database import Database, sqlite_file
from mvprune_service.db.engine.snapshot import _go_on_counting, _one_moment
from mvprune_service.db.tables.schema import METADATA


def copy_database(source: str, target: str) -> None:
    """Replaces the content of one database by that of another of the same kind, as it is at one moment. The target has
    the newest schema."""
    file, copy = sqlite_file(source), sqlite_file(target)
    if file is not None and copy is not None:
        with closing(sqlite3.connect(file)) as original, closing(sqlite3.connect(copy)) as other:
            original.backup(other)
        return
    with (
        closing(Database(source)) as here,
        closing(Database(target)) as there,
        here.engine.connect() as conn,
        there.engine.begin() as writing,
    ):
        moment = _one_moment(conn)
        for table in reversed(METADATA.sorted_tables):
            writing.execute(delete(table))
        for table in METADATA.sorted_tables:
            if rows := [dict(row) for row in moment.execute(select(table)).mappings()]:
                writing.execute(insert(table), rows)
            _go_on_counting(writing, table)
