"""Alembic revisions of the control plane's schema, and the calls that apply them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, inspect, text

from mvprune_service.db.tables.schema import METADATA

if TYPE_CHECKING:  # a server that has nothing to migrate starts without it
    from alembic.config import Config

HEAD = max(file.stem[:4] for file in Path(__file__).with_name("versions").glob("[0-9]*.py"))
LOCK = 0x6D767072  # PostgreSQL's advisory lock for migrations; any number that nothing else uses
_ALWAYS = {"jobs", "attempts", "events"}  # tables of every revision


class SchemaMismatch(Exception):
    """This version can do nothing with the database; the text says why."""


@dataclass(frozen=True)
class State:
    """Where a database is, and where this version wants it. `found` is None if it is empty."""

    found: str | None
    head: str

    @property
    def is_current(self) -> bool:
        """Whether there is nothing to do."""
        return self.found == self.head


def config_for(engine: Engine) -> Config:
    """Alembic's configuration for this package and `engine`."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "mvprune_migrations:")
    config.attributes["engine"] = engine
    return config


def state(engine: Engine) -> State:
    """Where the database is. Raises SchemaMismatch for a revision that this version does not know or that is another
    program's, for a database that has such tables but no revision, and for an SQLite file of another program. (In
    PostgreSQL extensions have tables.)"""
    with engine.connect() as connection:
        tables = inspect(connection).get_table_names()
        read = text("SELECT version_num FROM alembic_version")
        found: str | None = connection.execute(read).scalar() if "alembic_version" in tables else None
    foreign = {*tables} - {"alembic_version"} if engine.dialect.name == "sqlite" else METADATA.tables.keys() & tables
    if found is None and foreign:
        names = ", ".join(sorted(foreign))[:200]
        raise SchemaMismatch(f"the database has no revision, but tables: {names}; it seems to be another program's")
    if found is not None and _ALWAYS - {*tables}:
        raise SchemaMismatch(
            f"the database is at revision {found} of another program, which uses Alembic too: "
            "give mvprune a database of its own"
        )
    if found not in (None, HEAD) and found not in revisions(engine):
        raise SchemaMismatch(
            f"the database is at revision {found}, made by a newer version; this one works with {HEAD}: "
            "start the newer version"
        )
    return State(found, HEAD)


def revisions(engine: Engine) -> list[str]:
    """Every revision that this version knows, the newest first."""
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory.from_config(config_for(engine)).walk_revisions()]


def upgrade(engine: Engine) -> None:
    """Brings the database to the newest revision, wholly or not at all."""
    from alembic import command

    command.upgrade(config_for(engine), HEAD)


def backup(engine: Engine, now: State) -> Path | None:
    """Copies an SQLite file beside itself before it is migrated; None for PostgreSQL, whose copies are its owner's."""
    if engine.dialect.name != "sqlite" or engine.url.database is None:
        return None
    source = Path(engine.url.database)
    target = source.with_name(f"{source.name}.{now.found}")
    draft = target.with_name(f"{target.name}.tmp")
    draft.unlink(missing_ok=True)
    draft.touch(0o600)  # before it has any content
    with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(draft)) as copy:
        original.backup(copy)
    draft.replace(target)
    return target
