"""The meaning of a database error: whether the database is unavailable, and whether the write happened."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError, TimeoutError

_SQLITE_ERROR = 1  # the one operational error of SQLite that is a mistake in the statement
# PostgreSQL's that psycopg does not call operational: a standby, a transaction that was idle for too long.
_AWAY = ("25006", "25P03")
_LOST = ("57P01", "57P02", "57P03", "25P03")  # shut down, crashed, starting up, ended from outside
_CONFLICTS = ("40001", "40P01")  # serialization failure, deadlock


class DatabaseUnavailable(Exception):
    """The database does not answer, is too busy, full or read-only: another try later may help.

    A write that raises this may have happened: the answer to its commit can be lost. Only a write that is harmless to
    repeat may be tried again.
    """


def is_away(error: SQLAlchemyError) -> bool:
    """Whether the error is the database's and not the statement's."""
    if isinstance(error, TimeoutError):  # no connection became free
        return True
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error, OperationalError | InterfaceError):
        return getattr(error.orig, "sqlite_errorcode", None) != _SQLITE_ERROR
    return error.connection_invalidated or sqlstate(error) in _AWAY


def is_transient(error: DBAPIError) -> bool:
    """Whether a transaction that has not tried to commit may run again: after a conflict or a lost connection."""
    state = sqlstate(error)
    if state is None:
        return error.connection_invalidated or isinstance(error, OperationalError)
    return state in _CONFLICTS or state in _LOST or state.startswith("08")


def is_rolled_back(error: DBAPIError) -> bool:
    """Whether PostgreSQL reported that the commit failed: a conflict (not 40003, "unknown") or a constraint."""
    state = sqlstate(error) or ""
    return state in _CONFLICTS or state.startswith("23")


def sqlstate(error: DBAPIError) -> str | None:
    """PostgreSQL's code; None where it did not answer."""
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state
