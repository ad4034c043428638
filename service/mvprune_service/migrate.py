"""Migrating the database of a server that does not run, as `mvpctl server migrate` does."""

from __future__ import annotations

from pydantic import ValidationError
from pydantic_settings import SettingsError

from mvprune_service.config import Settings, usage_errors
from mvprune_service.db import opening
from mvprune_service.db.opening import Migration


class CannotMigrate(Exception):
    """The database was left as it is; the text says why and what to do."""


def migrate(**given: str) -> Migration:
    """Brings the database that these settings name (default: the server's own) to the newest revision. Raises
    CannotMigrate."""
    try:
        return opening.migrate(Settings(**given).database)  # type: ignore[arg-type]
    except ValidationError as error:
        raise CannotMigrate("; ".join(usage_errors(error))) from None
    except (SettingsError, opening.CannotOpen) as error:
        raise CannotMigrate(str(error)) from None
