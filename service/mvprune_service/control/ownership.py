"""The owner of the store: nothing is deleted unless this database knows every mark in the store.

A mark is an object that is written once and never changed. Its key has the random id of the database that wrote it, a
generation and a random token. The database remembers the tokens of its newest marks.

Each database writes a mark before it lets anything new into the store. `cover` does that, after these rows are
committed, and before somebody can act on them:

1. the rows: attempts that are to be started, or the chunks of an upload that is announced;
2. the token of a new mark;
3. the mark, in the store;
4. the deletion of the marks that this database knew before 2;
5. the workers are started, or the client gets its answer.

Let C be any other copy of the database: a backup, a snapshot, a dump, a copy that is served elsewhere.

- C was made before 1. Then it does not know the token of 2, and from 3 on it is not the owner. What the attempts and
  the client put into the store comes after 5.
- C was made after 1. Then it has the attempts, and they have not ended in it. Whatever they have put into the store
  since, C finds: the watchdog looks for the result of each attempt before it gives it up, and garbage collection keeps
  what is not older than a live attempt. So C publishes the same artifact. It lacks only checkpoints that were committed
  later; its job resumes from an earlier one.
- C stores something. Then it has written a mark of its own, and the original is not the owner either. Nobody deletes
  anything until the operator decides.

So the owner refers to every artifact that the store has, or has its attempt. This does not depend on a timer, and no
step waits for another server. The cost is three small requests for each round in which attempts start, and for each
upload.

A crash between any two steps leaves marks that the database knows, and rows that are covered again. Step 4 may be left
out: an older mark says less than the newest. Several servers of one database may do this at the same time. Each writes
an object of its own, so a server that was slow to write replaces nothing. Its mark is known as long as its token is
remembered. If that is over, or a mark of unknown form is found, nothing is deleted, and the operator decides. A pass of
garbage collection writes a mark too, so that a copy does not take part in the deletions of the next passes.

Two new databases that write the first mark to one store at once are both refused. The server's key does not matter: the
same key may be used with an empty database.

A store without a mark gets one without a question only if it is empty and the database refers to nothing in it.
Otherwise the operator decides: `mvpctl server adopt-store`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.installation import Installation, Mark, adopting_mark, installation, next_mark
from mvprune_service.db.overview import has_stored
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.holds import Holds
from mvprune_service.stores.layout import MARKS

ARTIFACTS = ("blobs/", "manifests/")
_CONTENTS = (*ARTIFACTS, "attempts/", "uploads/")  # of a store that is in use
_ADOPT = "`mvpctl server adopt-store` shows more and adopts it"
_SHOWN = 8  # digits of an id


class Standing(Enum):
    """How the marks of a store relate to a database."""

    OURS = "ours"
    NEW = "new"  # no mark, no contents
    UNMARKED = "unmarked"  # no mark, but contents, or a database that refers to some
    UNKNOWN = "unknown"  # a mark of another version
    FOREIGN = "foreign"
    NEWER = "newer"  # only marks of this database that are newer than it
    COPY = "copy"  # a mark of this database that a copy of it wrote


class StoreNotOwned(Exception):
    """The store does not belong to this database, so nothing may be deleted from it. The text says why."""


@dataclass(frozen=True)
class Look:
    """A store compared with a database.

    Attributes:
        marks: all marks of the store.
        mark: the newest mark that this database does not know, or else the newest; None without marks.
    """

    standing: Standing
    installation: Installation
    marks: Sequence[Mark] = ()
    mark: Mark | None = None

    @property
    def generation(self) -> int:
        """The greatest generation of a mark, 0 without marks."""
        return max((mark.generation for mark in self.marks), default=0)

    @property
    def why(self) -> str:
        """The problem in one line."""
        mark, own = self.mark, self.installation
        match self.standing:
            case Standing.UNMARKED:
                return "the store has no mark, but it or the database has artifacts"
            case Standing.UNKNOWN:
                return "the store has a mark of another version"
            case Standing.FOREIGN if mark:
                this = f"this is {own.uid[:_SHOWN]}" if own.uid else "this one is empty"
                does = "is also used by" if any(_is_known(own, each) for each in self.marks) else "belongs to"
                return f"the store {does} database {mark.database[:_SHOWN]}, {this}"
            case Standing.NEWER if mark:
                return (
                    f"the database (generation {own.generation}) is older than the store's mark "
                    f"(generation {mark.generation})"
                )
            case Standing.COPY:
                return "the store has a mark of another copy of this database, or of this one before it was restored"
        return "the store belongs to this database"


class Ownership:
    """Compares a store's marks with the database, and writes marks. Its methods raise StoreUnavailable."""

    def __init__(self, db: Database, store: BlobStore) -> None:
        self._db = db
        self._store = store
        self._holds = Holds(store)
        self._writing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def look(self) -> Look:
        """Compares the store with the database."""
        marks = await asyncio.to_thread(read_marks, self._store)
        own = await self._db.read(installation)  # after the marks, which are written after their tokens are stored
        is_used = not marks and (await asyncio.to_thread(is_used_store, self._store) or await self._db.read(has_stored))
        return compare(own, marks, is_used=is_used)

    async def check(self) -> None:
        """Raises StoreNotOwned unless the store belongs to this database. A new store gets a mark."""
        found = await self.look()
        if found.standing is Standing.NEW:
            await self.cover()
        elif found.standing is not Standing.OURS:
            raise StoreNotOwned(f"nothing is deleted from the store: {found.why}; {_ADOPT}")

    async def cover(self) -> None:
        """Returns once the store has a mark that only those copies of this database know which have all rows that were
        committed before the call. Calls at the same time share a mark. A store with contents and without a mark gets
        none: it belongs to nobody."""
        if self._next is None:
            self._next = asyncio.create_task(self._mark_after(self._writing), name="mark of the store")
        await asyncio.shield(self._next)

    async def _mark_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._writing, self._next = self._next, None
        there = await asyncio.to_thread(read_marks, self._store)
        if not there and (await self.look()).standing is Standing.UNMARKED:
            return
        mark, earlier = await self._db.write(next_mark)
        old = [one for one in there if one.database == mark.database and one.token in earlier]
        await asyncio.to_thread(self._replace, old, mark)

    def _replace(self, old: Sequence[Mark], mark: Mark) -> None:
        self._store.put(key_of(mark), b"")
        for each in old:
            self._store.delete(key_of(each))

    async def adopt(self, found: Look) -> Mark:
        """Makes this database the owner of the store that was `found`, whoever owned it."""
        mark = await self._db.write(adopting_mark, found.generation)
        await asyncio.to_thread(self._replace, found.marks, mark)
        return mark

    def is_held(self) -> bool:
        """Whether a backup is being made of the store, so that nothing may be deleted. Blocks."""
        return self._holds.any()

    def may_delete(self) -> bool:
        """Whether the store still belongs to this database, and no backup is being made. Blocks."""
        marks = read_marks(self._store)
        own = self._db.read_here(installation)
        return compare(own, marks, is_used=True).standing is Standing.OURS and not self.is_held()


def key_of(mark: Mark) -> str:
    """Where a mark lies."""
    return MARKS + (f"{mark.generation:020}.{mark.database}.{mark.token}" if mark.database else mark.token)


def read_marks(store: BlobStore) -> list[Mark]:
    """The marks of a store. One of unknown form has no database, and its name as its token. Raises StoreUnavailable."""
    return [_parse(entry.key.removeprefix(MARKS)) for entry in store.list(MARKS)]


def is_used_store(store: BlobStore) -> bool:
    """Whether the store has objects of an artifact, an attempt or an upload. Raises StoreUnavailable."""
    return any(next(iter(store.list(prefix)), None) for prefix in _CONTENTS)


def compare(own: Installation, marks: Sequence[Mark], *, is_used: bool) -> Look:
    """Compares marks with a database. `is_used`: the store has contents, or the database refers to some."""
    if not marks:
        return Look(Standing.UNMARKED if is_used else Standing.NEW, own)
    unknown = [mark for mark in marks if not _is_known(own, mark)]
    newest = max(unknown or marks, key=lambda mark: (mark.database != own.uid, mark.generation))
    if not unknown:
        standing = Standing.OURS
    elif not all(mark.database for mark in unknown):
        standing = Standing.UNKNOWN
    elif newest.database != own.uid:
        standing = Standing.FOREIGN
    else:
        is_newer = len(unknown) == len(marks) and newest.generation > own.generation
        standing = Standing.NEWER if is_newer else Standing.COPY
    return Look(standing, own, tuple(marks), newest)


def _is_known(own: Installation, mark: Mark) -> bool:
    return mark.database == own.uid and mark.token in own.tokens


def _parse(name: str) -> Mark:
    match name.split("."):
        case [generation, database, token] if generation.isdecimal() and len(generation) == 20 and database and token:
            return Mark(database, int(generation), token)
    return Mark("", 0, name)
