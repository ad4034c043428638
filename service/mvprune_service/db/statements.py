"""Statements that calls wait for, made and compiled once.

On SQLite they go to the driver itself: what SQLAlchemy does around them takes several times as long as they do.
"""

from __future__ import annotations

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, Table, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

_Processor = Callable[[Any], Any]
_NO_VALUES: Mapping[str, Any] = {}


class Query:
    """A SELECT, where it varies with `bindparam`s."""

    def __init__(self, select: Select[*tuple[Any, ...]]) -> None:
        self._select = select
        self._on_sqlite: _OnSqlite | None = None

    def all(self, conn: Connection, values: Mapping[str, Any] = _NO_VALUES) -> Sequence[Row[Any]]:
        """Its rows. Raises what SQLAlchemy would."""
        if conn.dialect.name != "sqlite":
            return conn.execute(self._select, values).all()
        if self._on_sqlite is None:
            self._on_sqlite = _OnSqlite(self._select, self._select.selected_columns, conn)
        return self._on_sqlite.run(conn, values)

    def first(self, conn: Connection, values: Mapping[str, Any] = _NO_VALUES) -> Row[Any] | None:
        """Its first row, None if it has none."""
        return next(iter(self.all(conn, values)), None)


class Insert:
    """An INSERT of one row. The database adds nothing to it: columns that are not given are null."""

    def __init__(self, table: Table) -> None:
        self._insert = insert(table)
        self._row = _row_type(table.c)
        self._on_sqlite: dict[tuple[str, ...], _OnSqlite] = {}  # by the columns that are given

    def __call__(self, conn: Connection, values: Mapping[str, Any]) -> Row[Any]:
        """Stores a row and returns it. Raises what SQLAlchemy would."""
        if conn.dialect.name != "sqlite":
            conn.execute(self._insert, values)
        else:
            names = tuple(name for name, value in values.items() if value is not None)
            if names not in self._on_sqlite:
                self._on_sqlite[names] = _OnSqlite(self._insert, (), conn, names)
            self._on_sqlite[names].run(conn, values)
        row: Row[Any] = self._row._make(map(values.get, self._row._fields))
        return row


class _OnSqlite:
    """A statement as SQLite's driver takes it; `names` are the columns that an INSERT sets."""

    def __init__(
        self, statement: Any, columns: Iterable[Any], conn: Connection, names: Sequence[str] | None = None
    ) -> None:
        dialect, columns = conn.dialect, list(columns)
        compiled: Any = statement.compile(dialect=dialect, column_keys=names)
        self._sql = str(compiled)
        self._given: list[tuple[str, Any]] = [(name, compiled.params[name]) for name in compiled.positiontup]
        types: list[TypeEngine[Any]] = [compiled.binds[name].type.dialect_impl(dialect) for name, _ in self._given]
        self._encoders = _present(kind.bind_processor(dialect) for kind in types)
        types = [column.type.dialect_impl(dialect) for column in columns]
        self._decoders = _present(kind.result_processor(dialect, None) for kind in types)
        self._row = _row_type(columns)

    def run(self, conn: Connection, values: Mapping[str, Any]) -> list[Row[Any]]:
        """Its rows, if it is of a kind that has any."""
        given = [values.get(name, default) for name, default in self._given]
        _process(given, self._encoders)
        return [self._made(row) for row in on_driver(conn, self._sql, given)]

    def _made(self, row: Sequence[Any]) -> Row[Any]:
        found = list(row)
        _process(found, self._decoders)
        made: Row[Any] = self._row._make(found)
        return made


def on_driver(conn: Connection, sql: str, given: Sequence[Any] = ()) -> list[Any]:
    """Runs a statement on SQLite's driver; returns its rows. Raises what SQLAlchemy would."""
    driver: Any = conn.connection.dbapi_connection
    try:
        rows: list[Any] = driver.execute(sql, given).fetchall()
    except sqlite3.Error as error:
        raise DBAPIError.instance(sql, given, error, sqlite3.Error, dialect=conn.dialect) from error
    return rows


def _row_type(columns: Iterable[Any]) -> Any:
    """As a Row, but its attributes are found in a fraction of the time."""
    return namedtuple("Row", [column.key for column in columns])


def _present(processors: Iterable[_Processor | None]) -> list[tuple[int, _Processor]]:
    return [(index, process) for index, process in enumerate(processors) if process is not None]


def _process(values: list[Any], processors: list[tuple[int, _Processor]]) -> None:
    for index, process in processors:
        if values[index] is not None:
            values[index] = process(values[index])
