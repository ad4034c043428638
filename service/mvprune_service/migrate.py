"""Migrates the database of a server that is not running, for `mvpctl server migrate`."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_settings import SettingsError

from mvprune_service.config import Settings, usage_errors
from mvprune_service.db import opening
from mvprune_service.db.opening import Migration


class CannotMigrate(Exception):
    """The database was not changed; the text says why and what to do."""


def migrate(**given: str) -> Migration:
    """Migrates the database of these settings (default: those of the server) to the newest revision. Raises
    CannotMigrate."""
    try:
        return opening.migrate(Settings(**given).database)  # type: ignore[arg-type]
    except ValidationError as error:
        raise CannotMigrate("; ".join(usage_errors(error))) from None
    except (SettingsError, opening.CannotOpen) as error:
        raise CannotMigrate(str(error)) from None
