"""The owner of the store: nothing is deleted unless the mark in the store is one that this database wrote.

The mark has the database's random id, which was made with its schema, and a token. The database remembers the tokens of
its newest marks, and writes a new mark with every pass of garbage collection. So three databases are not mistaken for
the owner: another database (its id differs), an older backup of the owner, and a copy of it that other servers use
(neither has the newest token). The server's key does not matter: the same key may be used with an empty database.

A store without a mark gets one without a question only if it is empty and the database refers to nothing in it.
Otherwise the operator decides: `mvpctl server adopt-store`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import asdict, dataclass
from enum import Enum

from mvprune_service.db.database import Database
from mvprune_service.db.installation import Installation, Mark, adopting_mark, installation, next_mark
from mvprune_service.db.overview import has_stored
from mvprune_service.stores.base import BlobStore, ObjectNotFound, StoreUnavailable
from mvprune_service.stores.holds import Holds

log = logging.getLogger(__name__)

OWNER_KEY = "OWNER"
ARTIFACTS = ("blobs/", "manifests/")
_CONTENTS = (*ARTIFACTS, "attempts/", "uploads/")  # of a store that is in use
_ADOPT = "`mvpctl server adopt-store` shows more and adopts it"
_SHOWN = 8  # digits of an id


class Standing(Enum):
    """How the mark of a store relates to a database."""

    OURS = "ours"
    NEW = "new"  # no mark, no contents
    UNMARKED = "unmarked"  # no mark, but contents, or a database that refers to some
    UNKNOWN = "unknown"  # not a mark of this version
    FOREIGN = "foreign"
    NEWER = "newer"  # of this database, and newer than it
    COPY = "copy"  # of this database, not newer: a copy of it wrote the mark


class StoreNotOwned(Exception):
    """The store does not belong to this database, so nothing may be deleted from it. The text says why."""


@dataclass(frozen=True)
class Look:
    """A store compared with a database. `raw` is the content of the mark, None if there is none."""

    standing: Standing
    installation: Installation
    raw: bytes | None
    mark: Mark | None

    @property
    def why(self) -> str:
        """What is wrong, in one line."""
        mark, own = self.mark, self.installation
        match self.standing:
            case Standing.UNMARKED:
                return "the store has no mark, but it or the database has artifacts"
            case Standing.UNKNOWN:
                return "the store's mark is of an earlier version"
            case Standing.FOREIGN if mark:
                this = f"this is {own.uid[:_SHOWN]}" if own.uid else "this one is empty"
                return f"the store belongs to database {mark.database[:_SHOWN]}, {this}"
            case Standing.NEWER if mark:
                return (
                    f"the database (generation {own.generation}) is older than the store's mark "
                    f"(generation {mark.generation})"
                )
            case Standing.COPY:
                return "the store's mark is of another copy of this database, or of this one before it was restored"
        return "the store belongs to this database"


class Ownership:
    """Compares a store's mark with the database. Its methods raise StoreUnavailable."""

    def __init__(self, db: Database, store: BlobStore) -> None:
        self._db = db
        self._store = store
        self._holds = Holds(store)

    async def look(self) -> Look:
        """Compares the store with the database."""
        raw = await asyncio.to_thread(read_mark, self._store)
        own = await self._db.read(installation)  # after the mark, which is written after its token is stored here
        is_used = raw is None and (
            await asyncio.to_thread(is_used_store, self._store) or await self._db.read(has_stored)
        )
        return compare(own, raw, is_used=is_used)

    async def check(self) -> bytes:
        """The mark of the store, if this database wrote it; a new store gets one. Raises StoreNotOwned."""
        found = await self.look()
        if found.standing is Standing.NEW:
            return await self._write(None)
        if found.standing is not Standing.OURS or found.raw is None:
            raise StoreNotOwned(f"nothing is deleted from the store: {found.why}; {_ADOPT}")
        return found.raw

    async def renew(self) -> None:
        """Writes a new mark, which distinguishes the database from its earlier backups. Raises StoreNotOwned."""
        if seen := _parse(await self.check()):
            await self._write(seen.token)

    async def _write(self, seen: str | None) -> bytes:
        mark = await self._db.write(next_mark, seen)
        if mark is not None:
            raw = _raw(mark)
            if await asyncio.to_thread(lambda: self._store.put(OWNER_KEY, raw, if_absent=seen is None)):
                return raw
        raise StoreUnavailable(f"{self._store.url}: another server has just marked it")  # the next look finds which

    async def adopt(self, found: Look) -> Mark:
        """Makes this database the owner of the store that was `found`, whoever owned it."""
        above = found.mark.generation if found.mark and found.mark.database == found.installation.uid else 0
        mark = await self._db.write(adopting_mark, above)
        await asyncio.to_thread(self._store.put, OWNER_KEY, _raw(mark))
        return mark

    def is_held(self) -> bool:
        """Whether a backup is being made of the store, so that nothing may be deleted. Blocks."""
        return self._holds.any()

    def may_delete(self, mark: bytes) -> bool:
        """Whether the store still has this mark, and no backup is being made. Blocks."""
        return read_mark(self._store) == mark and not self.is_held()


def read_mark(store: BlobStore) -> bytes | None:
    """The content of the mark, None if there is none. Raises StoreUnavailable."""
    try:
        return store.get(OWNER_KEY)
    except ObjectNotFound:
        return None


def is_used_store(store: BlobStore) -> bool:
    """Whether the store has objects of an artifact, an attempt or an upload. Raises StoreUnavailable."""
    return any(next(iter(store.list(prefix)), None) for prefix in _CONTENTS)


def compare(own: Installation, raw: bytes | None, *, is_used: bool) -> Look:
    """Compares a mark with a database. `is_used`: the store has contents, or the database refers to some."""
    if raw is None:
        return Look(Standing.UNMARKED if is_used else Standing.NEW, own, None, None)
    mark = _parse(raw)
    if mark is None:
        standing = Standing.UNKNOWN
    elif mark.database != own.uid:
        standing = Standing.FOREIGN
    elif mark.token in own.tokens:
        standing = Standing.OURS
    else:
        standing = Standing.NEWER if mark.generation > own.generation else Standing.COPY
    return Look(standing, own, raw, mark)


def _parse(raw: bytes) -> Mark | None:
    try:
        mark = Mark(**json.loads(raw))
    except (ValueError, TypeError):
        return None
    known = isinstance(mark.database, str) and type(mark.generation) is int and isinstance(mark.token, str)
    return mark if known else None


def _raw(mark: Mark) -> bytes:
    return json.dumps(asdict(mark)).encode() + b"\n"
