"""Statements, and the typed rows that they return.

Statements that clients wait for are prepared: compiled once. On SQLite, prepared statements go directly to the driver,
because SQLAlchemy's own work for a statement takes several times as long as the statement.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, Executable, Select, Table, insert
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

R = TypeVar("R", bound=NamedTuple)  # a row of db/tables
_Processor = Callable[[Any], Any]
_NO_VALUES: Mapping[str, Any] = {}


def fetch_all(conn: Connection, row: type[R], statement: Executable, values: Mapping[str, Any] = _NO_VALUES) -> list[R]:
    """Runs a statement and returns its rows. Their columns are those of `row`, in the same order."""
    found = conn.execute(statement, values)
    _check_columns(row, found.keys())
    return [row._make(one) for one in found]


def fetch_one(
    conn: Connection, row: type[R], statement: Executable, values: Mapping[str, Any] = _NO_VALUES
) -> R | None:
    """Runs a statement and returns its only row, or None. Raises MultipleResultsFound."""
    found = conn.execute(statement, values)
    _check_columns(row, found.keys())
    only = found.one_or_none()
    return None if only is None else row._make(only)


class Query(Generic[R]):
    """A prepared SELECT. Values that vary are `bindparam`s.

    Args:
        row: the type of its rows. The fields are the selected columns, in the same order.
    """

    def __init__(self, row: type[R], select: Select[*tuple[Any, ...]]) -> None:
        _check_columns(row, select.selected_columns.keys())
        self._row = row
        self._select = select
        self._on_sqlite: _OnSqlite | None = None

    def all(self, conn: Connection, values: Mapping[str, Any] = _NO_VALUES) -> list[R]:
        """Its rows. Raises what SQLAlchemy would."""
        if conn.dialect.name != "sqlite":
            return fetch_all(conn, self._row, self._select, values)
        if self._on_sqlite is None:
            self._on_sqlite = _OnSqlite(self._select, self._select.selected_columns, conn)
        return [self._row._make(found) for found in self._on_sqlite.run(conn, values)]

    def first(self, conn: Connection, values: Mapping[str, Any] = _NO_VALUES) -> R | None:
        """Its first row, None if it has none."""
        return next(iter(self.all(conn, values)), None)


class Insert(Generic[R]):
    """A prepared INSERT of one row. Columns without a value are null: the database adds nothing.

    Args:
        row: the type of the rows of `table`.
    """

    def __init__(self, row: type[R], table: Table[Any]) -> None:
        _check_columns(row, table.c.keys())
        self._row = row
        self._insert = insert(table)
        self._on_sqlite: dict[tuple[str, ...], _OnSqlite] = {}  # by the columns that have a value

    def __call__(self, conn: Connection, values: Mapping[str, Any]) -> R:
        """Stores a row and returns it. Raises what SQLAlchemy would."""
        if conn.dialect.name != "sqlite":
            conn.execute(self._insert, values)
        else:
            names = tuple(name for name, value in values.items() if value is not None)
            if names not in self._on_sqlite:
                self._on_sqlite[names] = _OnSqlite(self._insert, (), conn, names)
            self._on_sqlite[names].run(conn, values)
        return self._row._make(map(values.get, self._row._fields))


class _OnSqlite:
    """A statement for SQLite's driver. `names` are the columns that an INSERT sets."""

    def __init__(
        self, statement: Any, columns: Iterable[Any], conn: Connection, names: Sequence[str] | None = None
    ) -> None:
        dialect = conn.dialect
        compiled: Any = statement.compile(dialect=dialect, column_keys=names)
        self._sql = str(compiled)
        self._given: list[tuple[str, Any]] = [(name, compiled.params[name]) for name in compiled.positiontup]
        types: list[TypeEngine[Any]] = [compiled.binds[name].type.dialect_impl(dialect) for name, _ in self._given]
        self._encoders = _present(kind.bind_processor(dialect) for kind in types)
        types = [column.type.dialect_impl(dialect) for column in columns]
        self._decoders = _present(kind.result_processor(dialect, None) for kind in types)

    def run(self, conn: Connection, values: Mapping[str, Any]) -> list[list[Any]]:
        """The values of its rows; none for an INSERT."""
        given = [values.get(name, default) for name, default in self._given]
        _process(given, self._encoders)
        rows = [list(row) for row in on_driver(conn, self._sql, given)]
        for row in rows:
            _process(row, self._decoders)
        return rows


def on_driver(conn: Connection, sql: str, given: Sequence[Any] = ()) -> list[Any]:
    """Runs a statement on SQLite's driver; returns its rows. Raises what SQLAlchemy would."""
    driver: Any = conn.connection.dbapi_connection
    try:
        rows: list[Any] = driver.execute(sql, given).fetchall()
    except sqlite3.Error as error:
        raise DBAPIError.instance(sql, given, error, sqlite3.Error, dialect=conn.dialect) from error
    return rows


def _check_columns(row: type[NamedTuple], columns: Iterable[str]) -> None:
    """Raises TypeError unless these columns are the fields of the row, in the same order."""
    names = tuple(columns)
    if names != row._fields:
        raise TypeError(f"columns must be {row._fields} for {row.__name__}, got {names}")


def _present(processors: Iterable[_Processor | None]) -> list[tuple[int, _Processor]]:
    return [(index, process) for index, process in enumerate(processors) if process is not None]


def _process(values: list[Any], processors: list[tuple[int, _Processor]]) -> None:
    for index, process in processors:
        if values[index] is not None:
            values[index] = process(values[index])
