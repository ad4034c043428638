"""Files that the server may read for its callers: the folders that its settings name, without its own files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mvprune.client import contexts
from mvprune.common.exceptions import InvalidArgument
from mvprune.common.tracing import HEADERS_FILE
from mvprune.sources.references import InvalidReference, Roots
from mvprune_service.api.access import ports
from mvprune_service.config import Settings
from mvprune_service.db.engine.database import sqlite_file

_DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal", ".lock", ".commits")
# Of the service's other credentials: the bucket's, the hub's, PostgreSQL's. A process's folder in /proc shows its
# environment, which may hold more.
_CREDENTIALS = ("~/.aws", "~/.cache/huggingface/token", "~/.pgpass", "~/.ray/auth_token", "/proc")
_VARIABLES = (
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "CREDENTIALS_DIRECTORY",  # systemd's
    "HF_TOKEN_PATH",
    "MVPRUNE_CACHE",  # what workers on this machine have fetched, for all projects
    "MVPRUNE_CLIENT_KEY",
    "MVPRUNE_TOKEN_FILE",
    HEADERS_FILE,
    "PGPASSFILE",
    "RAY_AUTH_TOKEN_PATH",
)


class BadRoots(Exception):
    """The settings name folders that callers must not read from; the text says which and what to do."""


def roots(settings: Settings) -> Roots:
    """Where references of callers may lead. Call it once the home folder and the database are there.

    Without `--roots` it is the working folder too, but only where nobody else calls: on the loopback without tokens.

    Raises:
        BadRoots: a root lies in one of the server's own folders, or cannot be handed to workers.
    """
    alone = ports.is_for_one_user(settings)
    private = tuple(dict.fromkeys(_private(settings)))
    allowed = settings.roots
    if allowed is None:
        working = Path.cwd()
        allowed = (working,) if alone and not Roots(private=private).is_private(working) else ()
    found = Roots(
        models=settings.models,
        data=settings.data,
        allowed=allowed,
        buckets=settings.buckets,
        hub=settings.hub_models,
        private=private,
        discreet=not alone,
    )
    for root in found.allowed:
        if found.is_private(root):
            setting = "models" if root == found.models else "data" if root == found.data else "roots"
            raise BadRoots(
                f"{setting} must be outside the server's own folders, got {root}; "
                "move what callers may read elsewhere, or choose another --home or --store"
            )
    try:
        found.to_environment()
    except InvalidReference as error:
        raise BadRoots(str(error)) from None
    return found


def _private(settings: Settings) -> Iterator[Path]:
    """The service's own files and secrets. Links stay links: their targets may be replaced."""
    yield from settings.private
    store = urlsplit(settings.store_url)
    if store.scheme == "file":
        yield Path(unquote(store.path))
    if database := sqlite_file(settings.database):
        yield from (database.with_name(f"{database.name}{suffix}") for suffix in _DATABASE_SUFFIXES)
        yield from database.parent.glob(f"{database.name}[.-]*")  # copies made by a migration or an adoption
    yield from (Path(os.path.expanduser(path)) for path in _CREDENTIALS)  # noqa: PTH111 (Path's own may raise)
    yield from (Path(value).absolute() for name in _VARIABLES if (value := os.environ.get(name)))
    yield from _tokens_of_commands()


def _tokens_of_commands() -> Iterator[Path]:
    """mvpctl's settings file, and the files with tokens that it names."""
    with suppress(InvalidArgument):
        yield contexts.path()
        for context in contexts.read().contexts.values():
            if file := context.get("token_file"):
                yield Path(file)
