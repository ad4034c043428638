"""A snapshot: all rows of a database at one moment, in an SQLite file with the same tables.

It is the same for both databases. pg_dump is not used: it refuses servers that are newer than itself, and it is not on
every machine that has this package. So PostgreSQL is read through SQLAlchemy, in one REPEATABLE READ transaction, and
SQLite in one read transaction. Both go on meanwhile. SQLite's own backup API copies pages; here each row is read, so a
row that cannot be read is found when the copy is made. As a consequence, a snapshot of one kind of database can be
loaded into the other.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    MetaData,
    Table,
    Text,
    create_engine,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.types import TypeEngine

import mvprune_migrations
from mvprune_service.db.engine.database import Database, read_only_url, sqlite_url
from mvprune_service.db.engine.installation import Installation, installation
from mvprune_service.db.tables.base import Member
from mvprune_service.db.tables.schema import METADATA
from mvprune_service.db.tables.server import INSTALLATION, QUARANTINE

_ROWS = 200  # at a time: a row of a log may have a megabyte
_LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout")  # of PostgreSQL, meant for short transactions
# Objects in quarantine are not in a backup, since nothing refers to them. Their notes do not count for another store.
_LOADED = tuple(table for table in METADATA.sorted_tables if table is not QUARANTINE)
_Progress = Callable[[int, int], None]


def dump(conn: Connection, file: Path, on_rows: _Progress = lambda done, total: None) -> int:
    """Writes a snapshot of a database with the newest schema to a new file; returns the number of rows.

    Args:
        conn: not in a transaction yet; read only.
        on_rows: called with the rows that are written, and how many there are.
    """
    conn = _one_moment(conn)
    tables = METADATA.sorted_tables
    total = sum(conn.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)
    done = 0
    with _created(file) as copy:
        for table in tables:
            copy.execute(delete(table))  # the new file has an identity of its own
            done = _copy(conn, copy, table, done, lambda now: on_rows(now, total))
    _make_plain(file)
    return done


def load(file: Path, conn: Connection, generation: int, on_rows: _Progress = lambda done, total: None) -> int:
    """Copies all rows of a snapshot with the newest schema into the empty tables of a database, in the transaction of
    `conn`; returns the number of rows. The database gets the snapshot's identity, without its right to delete from a
    store: see control/ownership.py.

    Args:
        generation: that the database has afterwards, if it is greater than the snapshot's.
    """
    done = 0
    with opened_snapshot(file) as source:
        own = installation(source)
        total = sum(source.execute(select(func.count()).select_from(table)).scalar_one() for table in _LOADED)
        conn.execute(delete(INSTALLATION))
        for table in _LOADED:
            done = _copy(source, conn, table, done, lambda now: on_rows(now, total))
            _go_on_counting(conn, table)
    conn.execute(update(INSTALLATION).values(generation=max(own.generation, generation), tokens=[]))
    return done


def is_empty(conn: Connection) -> bool:
    """Whether no table has rows, but for the identity that each new database has."""
    tables = [table for table in METADATA.sorted_tables if table is not INSTALLATION]
    return not any(conn.execute(select(table).limit(1)).first() for table in tables)


def identity(file: Path) -> Installation:
    """The identity of the database that a snapshot is of."""
    with opened_snapshot(file) as conn:
        return installation(conn)


def upgrade(file: Path) -> None:
    """Brings a snapshot of an older version to this version's schema. Raises SchemaMismatch for one of a newer
    version, sqlite3.Error or SQLAlchemyError for a file that is no snapshot."""
    with closing(Database(sqlite_url(file))) as db:
        if not mvprune_migrations.state(db.engine).is_current:
            mvprune_migrations.upgrade(db.engine)
    _make_plain(file)


@contextmanager
def opened_snapshot(file: Path) -> Iterator[Connection]:
    """A read-only connection to a snapshot."""
    engine = create_engine(read_only_url(file.absolute(), immutable="1"))
    try:
        with engine.connect() as conn:
            yield conn
    finally:
        engine.dispose()


def _one_moment(conn: Connection) -> Connection:
    """Begins a transaction that reads everything as it is now."""
    if conn.dialect.name != "postgresql":
        conn.exec_driver_sql("BEGIN")  # the driver begins none for a SELECT
        return conn
    conn = conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    for limit in _LIMITS:
        conn.execute(text(f"SET LOCAL {limit} = 0"))
    return conn


@contextmanager
def _created(file: Path) -> Iterator[Connection]:
    with closing(Database(sqlite_url(file))) as db:
        mvprune_migrations.upgrade(db.engine)
        with db.engine.begin() as conn:
            yield conn


def _make_plain(file: Path) -> None:
    """Leaves one file, which can be read where nothing can be written."""
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("PRAGMA journal_mode = DELETE")


def _copy(source: Connection, target: Connection, table: Table, done: int, on_rows: Callable[[int], None]) -> int:
    """Copies the rows of a table; returns `done` and their number."""
    plain = _plain(table)
    found = source.execution_options(yield_per=_ROWS).execute(select(plain))
    for rows in found.mappings().partitions():
        target.execute(insert(plain), [dict(row) for row in rows])
        done += len(rows)
        on_rows(done)
    return done


def _plain(table: Table) -> Table:
    """The table with types that keep values as they are stored."""
    return Table(table.name, MetaData(), *(Column(column.name, _type(column.type)) for column in table.columns))


def _type(kind: TypeEngine[Any]) -> TypeEngine[Any]:
    if isinstance(kind, Member):
        return Text()
    return JSON(none_as_null=True) if isinstance(kind, JSON) else kind


def _go_on_counting(conn: Connection, table: Table) -> None:
    """PostgreSQL counts the numbers of new rows in a sequence, which does not notice rows that come with a number."""
    column = table.autoincrement_column
    if column is None or conn.dialect.name != "postgresql":
        return
    name = {"table": table.name, "column": column.name}
    sequence = conn.execute(text("SELECT pg_get_serial_sequence(:table, :column)"), name).scalar()
    highest = conn.execute(select(func.max(column))).scalar()
    if sequence is not None and highest is not None:
        conn.execute(
            text("SELECT setval(CAST(:sequence AS regclass), :highest)"), {"sequence": sequence, "highest": highest}
        )
