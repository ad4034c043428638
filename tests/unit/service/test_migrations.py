"""The migrations give the schema that the code is written against."""

from __future__ import annotations

from pathlib import Path

from alembic import command

from mvprune_migrations import config_for, upgrade
from mvprune_service.db.database import Database


def test_the_newest_revision_is_the_schema(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path / 'x.sqlite'}")
    upgrade(db.engine)
    upgrade(db.engine)  # again: nothing to do
    command.check(config_for(db.engine))  # raises where models and revisions differ
    db.close()
