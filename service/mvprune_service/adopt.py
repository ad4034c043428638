"""Giving a store to a database, as `mvpctl server adopt-store` does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy import Connection

from mvprune_service.config import Settings, usage_errors
from mvprune_service.control.ownership import ARTIFACTS, Look, Ownership, Standing, compare, is_used_store, read_mark
from mvprune_service.db import integrity, janitor, opening
from mvprune_service.db.installation import Installation, installation
from mvprune_service.db.janitor import ArtifactKey
from mvprune_service.db.outages import DatabaseUnavailable
from mvprune_service.db.overview import has_stored
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable

_PAGE = 500  # rows a read
_EMPTY = Installation("", 0, ())  # an empty database: its schema, and its id, are made when it adopts the store


class CannotAdopt(Exception):
    """Store and database were left as they are; the text says why and what to do."""


@dataclass(frozen=True)
class Adoption:
    """What was found, and whether the store was adopted.

    Attributes:
        store: URL of the store.
        standing: what the store's mark says to the database: ours, new, unmarked, unknown, foreign, newer or copy.
        why: the same in words.
        database: id of the database, "" if that is empty; `generation` is its generation.
        marked_by: id of the database that the mark names, None without a readable mark.
        marked_generation: the generation in the mark, None without a readable mark.
        lost: which commits the database has lost, as a refused start says it; None if nothing is missing.
        objects: files and manifests of artifacts in the store.
        unreferenced: those that nothing in this database refers to.
        kept_wal: copy of the WAL of a database that has lost commits; None if there was none to keep.
        adopted: whether this call gave the store to the database.
    """

    store: str
    standing: str
    why: str
    database: str
    generation: int
    marked_by: str | None
    marked_generation: int | None
    lost: str | None
    objects: int
    unreferenced: int
    kept_wal: Path | None = None
    adopted: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether a server would not start, or delete nothing, without it."""
        return self.lost is not None or self.standing not in (Standing.OURS.value, Standing.NEW.value)


def adopt(*, confirmed: bool, **given: str) -> Adoption:
    """Compares the store with the database that these settings name (default: the server's own), and gives it to the
    database if that is needed and `confirmed`. Raises CannotAdopt."""
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
        return _adopt(settings, confirmed)
    except ValidationError as error:
        raise CannotAdopt("; ".join(usage_errors(error))) from None
    except DatabaseUnavailable as error:
        raise CannotAdopt(f"the database went away ({error})") from None
    except (SettingsError, opening.CannotOpen, StoreUnavailable, ValueError, OSError) as error:
        raise CannotAdopt(str(error)) from None


def _adopt(settings: Settings, confirmed: bool) -> Adoption:
    store = open_store(settings.store_url, create=False)
    lost = opening.lost_commits(settings.database)
    with opening.looked_at(settings.database) as conn:
        look = _look(conn, store)
        objects, unreferenced = _count(conn, store)
    found = Adoption(
        store=store.url,
        standing=look.standing.value,
        why=look.why,
        database=look.installation.uid,
        generation=look.installation.generation,
        marked_by=look.mark.database if look.mark else None,
        marked_generation=look.mark.generation if look.mark else None,
        lost=lost,
        objects=objects,
        unreferenced=unreferenced,
    )
    if not (confirmed and found.is_needed):
        return found
    kept: list[Path | None] = [None]
    with opening.opened(settings.database, lambda file: kept.append(integrity.accept_loss(file))) as db:
        opening.prepare(db, migrate=False)
        mark = asyncio.run(Ownership(db, store).adopt(look))
    return replace(found, database=mark.database, generation=mark.generation, kept_wal=kept[-1], adopted=True)


def _look(conn: Connection | None, store: BlobStore) -> Look:
    own = installation(conn) if conn is not None else _EMPTY
    is_used = is_used_store(store) or (conn is not None and has_stored(conn))
    return compare(own, read_mark(store), is_used=is_used)


def _count(conn: Connection | None, store: BlobStore) -> tuple[int, int]:
    """How many files and manifests of artifacts there are, and how many that no artifact of the database has."""
    needed = set[str]()
    page: ArtifactKey | None = None
    while conn is not None:
        references, page = janitor.page_of_references(conn, page, _PAGE)
        needed |= references
        if page is None:
            break
    names = [entry.key.rpartition("/")[2] for prefix in ARTIFACTS for entry in store.list(prefix)]
    return len(names), sum(name not in needed for name in names)
