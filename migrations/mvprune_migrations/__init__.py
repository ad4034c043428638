"""Alembic revisions of the control plane's schema, and the call that applies them."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine


def config_for(engine: Engine) -> Config:
    """Alembic's configuration for this package and `engine`."""
    config = Config()
    config.set_main_option("script_location", "mvprune_migrations:")
    config.attributes["engine"] = engine
    return config


def upgrade(engine: Engine) -> None:
    """Brings the database to the newest revision."""
    command.upgrade(config_for(engine), "head")
