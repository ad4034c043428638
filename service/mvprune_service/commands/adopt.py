"""Gives a store to a database, for `mvpctl server adopt-store`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import Connection

from mvprune_service.command_line import CommandFailed, command_settings
from mvprune_service.config import Settings
from mvprune_service.control.ownership import ARTIFACTS, Look, Ownership, Standing, compare, is_used_store, read_marks
from mvprune_service.db import janitor
from mvprune_service.db.engine import integrity, opening
from mvprune_service.db.engine.installation import Installation, installation
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.janitor import ArtifactKey
from mvprune_service.db.overview import has_stored
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable

_PAGE = 500  # rows a read
_EMPTY = Installation("", 0, ())  # an empty database: adopting the store creates its schema and its id


@dataclass(frozen=True)
class Adoption:
    """The findings, and whether the store was adopted.

    Attributes:
        store: URL of the store.
        standing: how the store's marks relate to the database: ours, new, unmarked, unknown, foreign, newer or copy.
        why: the same as a sentence.
        database: id of the database, "" if that is empty; `generation` is its generation.
        marked_by: id of the database that wrote the newest mark which this one does not know, or else the newest mark;
            None without a readable mark.
        marked_generation: the generation of that mark, None without a readable mark.
        lost: the commits that the database has lost, as the error of a start describes them; None without a loss.
        objects: number of files and manifests of artifacts in the store.
        unreferenced: number of those that nothing in this database refers to.
        kept_wal: copy of the WAL of a database that has lost commits; None without one.
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
        """Whether a server, without it, would not start or would delete nothing."""
        return self.lost is not None or self.standing not in (Standing.OURS.value, Standing.NEW.value)


def adopt(*, confirmed: bool, **given: str) -> Adoption:
    """Compares store and database of these settings (default: those of the server). If it is needed and `confirmed`,
    gives the store to the database. Raises CommandFailed; store and database are then unchanged."""
    try:
        return _adopt(command_settings(**given), confirmed)
    except DatabaseUnavailable as error:
        raise CommandFailed(f"the database became unavailable ({error})") from None
    except (opening.CannotOpen, StoreUnavailable, ValueError, OSError) as error:
        raise CommandFailed(str(error)) from None


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
        marked_by=look.mark.database or None if look.mark else None,
        marked_generation=look.mark.generation if look.mark and look.mark.database else None,
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
    return compare(own, read_marks(store), is_used=is_used)


def _count(conn: Connection | None, store: BlobStore) -> tuple[int, int]:
    """The number of files and manifests of artifacts in the store, and of those that the database does not refer to."""
    needed = set[str]()
    page: ArtifactKey | None = None
    while conn is not None:
        references, page = janitor.page_of_references(conn, page, _PAGE)
        needed |= references
        if page is None:
            break
    names = [entry.key.rpartition("/")[2] for prefix in ARTIFACTS for entry in store.list(prefix)]
    return len(names), sum(name not in needed for name in names)
