"""Migrates the database of a server that is not running, for `mvpctl server migrate`."""

from __future__ import annotations

from mvprune_service.command_line import CommandFailed, command_settings
from mvprune_service.db.engine import opening
from mvprune_service.db.engine.opening import Migration


def migrate(**given: str) -> Migration:
    """Migrates the database of these settings (default: those of the server) to the newest revision. Raises
    CommandFailed; the database is then unchanged."""
    try:
        return opening.migrate(command_settings(**given).database)
    except opening.CannotOpen as error:
        raise CommandFailed(str(error)) from None
