"""Opens a database to serve from it or to migrate it. Everything that can be wrong with it is one exception."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DatabaseError, SQLAlchemyError

import mvprune_migrations
from mvprune_migrations import SchemaMismatch
from mvprune_service.db.engine import integrity
from mvprune_service.db.engine.database import BadDatabase, Database, read_only_url, sqlite_file
from mvprune_service.db.engine.integrity import BadFile
from mvprune_service.db.engine.outages import is_away
from mvprune_service.db.engine.snapshot import is_empty
from mvprune_service.lock import CannotLock, lock


class CannotOpen(Exception):
    """The database cannot be used; the text says why and what to do. It contains no password."""


@dataclass(frozen=True)
class Migration:
    """A migration from one revision (None: an empty database) to another, and the copy of the old database."""

    found: str | None
    head: str
    backup: Path | None


@contextmanager
def opened(url: str, accept_loss: Callable[[Path], None] | None = None) -> Iterator[Database]:
    """Opens the database, and closes it in the end. Only this process uses an SQLite file. A file that is damaged or
    has lost commits is refused, and so is a pooler that shares sessions. Raises CannotOpen.

    Args:
        accept_loss: called with a file that has lost commits, before it is opened. Then the file is not refused.
    """
    with ExitStack() as stack:
        with _explained():
            if file := sqlite_file(url):
                text = f"another server uses the database {file} (PostgreSQL serves several)"
                stack.enter_context(lock(file.with_name(f"{file.name}.lock"), text))
                _examine(file, accept_loss)
            db = Database(url)
        stack.callback(db.close)
        with _explained():
            _check_sessions(db)
        yield db


@contextmanager
def looked_at(url: str) -> Iterator[Connection | None]:
    """A read-only connection to a database that servers may be using; None if the database is empty. Raises
    CannotOpen."""
    with _explained(), ExitStack() as stack:
        yield _connected(url, stack)


def _connected(url: str, stack: ExitStack) -> Connection | None:
    file = sqlite_file(url)
    if file is not None and not integrity.has_content(file):
        return None
    if file is not None:
        engine = create_engine(read_only_url(file))
        stack.callback(engine.dispose)
    else:
        db = Database(url)
        stack.callback(db.close)
        engine = db.engine
    state = mvprune_migrations.state(engine)
    if state.found is not None and not state.is_current:
        raise CannotOpen(_outdated(state))
    return stack.enter_context(engine.connect()) if state.found else None


def lost_commits(url: str) -> str | None:
    """The commits that an SQLite database has lost, in the words of a refused start. Raises CannotOpen."""
    with _explained():
        file = sqlite_file(url)
        try:
            if file is not None:
                integrity.find_lost_commits(file)
        except BadFile as error:
            return str(error)
    return None


def damage(url: str) -> list[str]:
    """Faults in the pages, indexes and references of an SQLite database. A server may be using it. Raises
    CannotOpen."""
    with _explained():
        file = sqlite_file(url)
        found = integrity.deep_findings(file) if file is not None and integrity.has_content(file) else []
    return [f"the database {file}: {what}" for what in found]


def prepare(db: Database, *, migrate: bool) -> None:
    """Creates the schema of an empty database, and refuses or migrates one at an older revision. From then on commits
    are witnessed. Raises CannotOpen."""
    with _explained():
        state = mvprune_migrations.state(db.engine)
        if state.found is None or migrate:
            _upgrade(db, state)
        elif not state.is_current:
            raise CannotOpen(_outdated(state))
        db.witness_commits()


def prepare_empty(db: Database) -> None:
    """Creates the schema of a database that is to be loaded. Raises CannotOpen for one that has rows, is at an older
    revision, or is used by servers."""
    with _explained():
        state = mvprune_migrations.state(db.engine)
        if _is_served(db):
            raise CannotOpen("servers use the database: stop all of them first")
        if state.found is None:
            mvprune_migrations.upgrade(db.engine)
        with db.engine.connect() as conn:
            if (state.found is not None and not state.is_current) or not is_empty(conn):
                raise CannotOpen("the database must be empty, got one with rows; move it away, or name another")


def is_served(db: Database) -> bool:
    """Whether servers use the database now. Raises CannotOpen."""
    with _explained():
        return _is_served(db)


def _outdated(state: mvprune_migrations.State) -> str:
    return (
        f"the database is at revision {state.found}, this version works with {state.head}: "
        "run `mvpctl server migrate`, or start with --migrate"
    )


def migrate(url: str) -> Migration:
    """Migrates a database that no server uses to the newest revision. Raises CannotOpen."""
    with opened(url) as db, _explained():
        return _upgrade(db, mvprune_migrations.state(db.engine))


def _upgrade(db: Database, state: mvprune_migrations.State) -> Migration:
    if state.found is not None and not state.is_current and _is_served(db):
        state = mvprune_migrations.state(db.engine)  # a replica that starts at the same time may have migrated it
        if not state.is_current:
            message = f"servers use the database, at revision {state.found}: stop all of them before it is migrated"
            raise CannotOpen(message)
    backup = None if state.found is None or state.is_current else _copy(db, state)
    mvprune_migrations.upgrade(db.engine)
    return Migration(state.found, state.head, backup)


def _copy(db: Database, state: mvprune_migrations.State) -> Path | None:
    try:
        return mvprune_migrations.backup(db.engine, state)
    except sqlite3.Error as error:
        raise CannotOpen(f"the database cannot be copied, so it is not migrated: {error}") from None


def _examine(file: Path, accept_loss: Callable[[Path], None] | None) -> None:
    try:
        integrity.find_lost_commits(file)
    except BadFile:
        if accept_loss is None:
            raise
        accept_loss(file)
    integrity.examine(file)


def _check_sessions(db: Database) -> None:
    """Raises CannotOpen for a pooler that shares the sessions of PostgreSQL."""
    if db.engine.dialect.name != "postgresql":
        return
    from mvprune_service.db.engine import postgres  # needs its driver

    if postgres.shares_sessions(db.engine):
        raise CannotOpen(
            "the database must give each connection a session of its own, got a pooler that changes it between "
            "transactions: connect to PostgreSQL itself, or set the pooler to sessions (PgBouncer: pool_mode = session)"
        )


def _is_served(db: Database) -> bool:
    """Whether servers use it now. For SQLite this process has the lock already."""
    if db.engine.dialect.name != "postgresql":
        return False
    from mvprune_service.db.engine import postgres  # needs its driver

    return postgres.is_served(db.engine)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (BadDatabase, BadFile, SchemaMismatch, CannotLock) as error:
        raise CannotOpen(str(error)) from None
    except SQLAlchemyError as error:
        if not is_away(error) and type(error) is not DatabaseError:  # of a damaged file
            raise
        reason = str(getattr(error, "orig", error)).strip().partition("\n")[0]
        raise CannotOpen(f"the database cannot be used: {reason}") from None
    except sqlite3.Error as error:
        raise CannotOpen(f"the database cannot be used: {error}") from None
