"""Whose the store is: before anything is deleted, the mark in the store must be one that this database wrote.

The mark names the database by a random id that was made with its schema, and carries a token. The database remembers
the tokens of its newest marks, and writes a new mark with every pass of garbage collection. So three things are told
apart from the store's owner: another database (its id differs), an older backup of the same one, and a copy of it that
went on by itself (neither knows the newest token). The server's key plays no part: the same key may be used with an
empty database.

A store without a mark is taken silently only while it is empty and the database refers to nothing in it. Everything
else is a decision of the operator: `mvpctl server adopt-store`.
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

log = logging.getLogger(__name__)

OWNER_KEY = "OWNER"
ARTIFACTS = ("blobs/", "manifests/")
_CONTENTS = (*ARTIFACTS, "attempts/")  # of a store that is in use
_ADOPT = "`mvpctl server adopt-store` shows more and adopts it"
_SHOWN = 8  # digits of an id


class Standing(Enum):
    """What a store's mark says to a database."""

    OURS = "ours"
    NEW = "new"  # no mark, and nothing to lose
    UNMARKED = "unmarked"  # no mark, but contents, or a database that refers to some
    UNKNOWN = "unknown"  # not such a mark, as those of earlier versions
    FOREIGN = "foreign"
    NEWER = "newer"  # of this database, later than what it knows
    COPY = "copy"  # of this database, not later: another copy of it wrote it


class StoreNotOwned(Exception):
    """The store does not belong to this database, so nothing may be deleted from it. The text says why."""


@dataclass(frozen=True)
class Look:
    """A store beside a database. `raw` is the mark as it lies in the store, None if there is none."""

    standing: Standing
    installation: Installation
    raw: bytes | None
    mark: Mark | None

    @property
    def why(self) -> str:
        """What is wrong, in a line."""
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
                return "the store's mark is of another copy of this database"
        return "the store belongs to this database"


class Ownership:
    """Compares a store's mark with the database. Its methods raise StoreUnavailable."""

    def __init__(self, db: Database, store: BlobStore) -> None:
        self._db = db
        self._store = store

    async def look(self) -> Look:
        """Whose the store is now."""
        raw = await asyncio.to_thread(read_mark, self._store)
        own = await self._db.read(installation)  # after the mark: it is written after its token is known here
        is_used = raw is None and (
            await asyncio.to_thread(is_used_store, self._store) or await self._db.read(has_stored)
        )
        return compare(own, raw, is_used=is_used)

    async def check(self) -> bytes:
        """The store's mark, which is this database's; a new store gets one. Raises StoreNotOwned."""
        found = await self.look()
        if found.standing is Standing.NEW:
            return await self._write(None)
        if found.standing is not Standing.OURS or found.raw is None:
            raise StoreNotOwned(f"nothing is deleted from the store: {found.why}; {_ADOPT}")
        return found.raw

    async def renew(self) -> None:
        """Writes a new mark, so that backups of the database that were made before can be told from it. Raises
        StoreNotOwned."""
        if seen := _parse(await self.check()):
            await self._write(seen.token)

    async def _write(self, seen: str | None) -> bytes:
        mark = await self._db.write(next_mark, seen)
        if mark is not None:
            raw = _raw(mark)
            if await asyncio.to_thread(lambda: self._store.put(OWNER_KEY, raw, if_absent=seen is None)):
                return raw
        raise StoreUnavailable(f"{self._store.url}: another server has just marked it")  # the next look says which

    async def adopt(self, found: Look) -> Mark:
        """Makes the store this database's, whoever's it was when it was `found`."""
        above = found.mark.generation if found.mark and found.mark.database == found.installation.uid else 0
        mark = await self._db.write(adopting_mark, above)
        await asyncio.to_thread(self._store.put, OWNER_KEY, _raw(mark))
        return mark

    def is_still(self, mark: bytes) -> bool:
        """Whether the store's mark is that one. Blocks: for the middle of a deletion."""
        return read_mark(self._store) == mark


def read_mark(store: BlobStore) -> bytes | None:
    """The mark as it lies in the store, None if there is none. Raises StoreUnavailable."""
    try:
        return store.get(OWNER_KEY)
    except ObjectNotFound:
        return None


def is_used_store(store: BlobStore) -> bool:
    """Whether there is anything of an artifact or an attempt. Raises StoreUnavailable."""
    return any(next(iter(store.list(prefix)), None) for prefix in _CONTENTS)


def compare(own: Installation, raw: bytes | None, *, is_used: bool) -> Look:
    """What a mark says to a database. `is_used`: whether the store has contents, or the database refers to any."""
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
