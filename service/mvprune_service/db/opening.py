"""Opening a database to serve from it, or to migrate it: what can be wrong with it is one exception."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.exc import DatabaseError, SQLAlchemyError

import mvprune_migrations
from mvprune_migrations import SchemaMismatch
from mvprune_service.db.database import BadDatabase, Database, sqlite_file
from mvprune_service.db.outages import is_away
from mvprune_service.lock import InUse, lock


class CannotOpen(Exception):
    """The database cannot be used; the text says why and what to do. It holds no password."""


@dataclass(frozen=True)
class Migration:
    """What a migration did: from one revision (None: an empty database) to another, with a copy of what was."""

    found: str | None
    head: str
    backup: Path | None


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """The database, closed in the end. SQLite's file is this process's alone. Raises CannotOpen."""
    with ExitStack() as stack:
        with _explained():
            if file := sqlite_file(url):
                text = f"another server uses the database {file} (PostgreSQL serves several)"
                stack.enter_context(lock(file.with_name(f"{file.name}.lock"), text))
            db = Database(url)
        stack.callback(db.close)
        yield db


def prepare(db: Database, *, migrate: bool) -> None:
    """Makes the schema of an empty database. One at an older revision is refused, or migrated. Raises CannotOpen."""
    with _explained():
        state = mvprune_migrations.state(db.engine)
        if state.found is None or migrate:
            _upgrade(db, state)
        elif not state.is_current:
            raise CannotOpen(
                f"the database is at revision {state.found}, this version works with {state.head}: "
                "run `mvpctl server migrate`, or start with --migrate"
            )


def migrate(url: str) -> Migration:
    """Brings a database that no server uses to the newest revision. Raises CannotOpen."""
    with opened(url) as db, _explained():
        return _upgrade(db, mvprune_migrations.state(db.engine))


def _upgrade(db: Database, state: mvprune_migrations.State) -> Migration:
    if state.found is not None and not state.is_current and _is_served(db):
        state = mvprune_migrations.state(db.engine)  # a replica that starts at the same time may have migrated it
        if not state.is_current:
            message = f"servers use the database, at revision {state.found}: stop all of them before it is migrated"
            raise CannotOpen(message)
    backup = None if state.found is None or state.is_current else mvprune_migrations.backup(db.engine, state)
    mvprune_migrations.upgrade(db.engine)
    return Migration(state.found, state.head, backup)


def _is_served(db: Database) -> bool:
    """Whether servers use it now. SQLite's lock is ours already."""
    if db.engine.dialect.name != "postgresql":
        return False
    from mvprune_service.db import postgres  # needs a driver, which is there where it is used

    return postgres.is_served(db.engine)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except (BadDatabase, SchemaMismatch, InUse) as error:
        raise CannotOpen(str(error)) from None
    except SQLAlchemyError as error:
        if not is_away(error) and type(error) is not DatabaseError:  # SQLite's for a file that is none, or damaged
            raise
        reason = str(getattr(error, "orig", error)).strip().partition("\n")[0]
        raise CannotOpen(f"the database cannot be used: {reason}") from None
    except sqlite3.Error as error:  # of the copy
        raise CannotOpen(f"the database cannot be copied, so it is not migrated: {error}") from None
