"""Takes out of the store what nothing refers to: blobs, manifests, markers, checkpoints, torn uploads.

Blobs are shared, and an upload sends nothing for a blob that is there. This is why no upload loses one to a sweep:

1. Whoever uploads makes old things young. `put_file` skips a blob only if it is younger than FRESH_US, and writes it
   anew otherwise; `publish` always writes the manifest.
2. Only old things are deleted: at least GRACE_US older than the beginning of the oldest live attempt, however long
   that has been uploading. Attempts that ended well before that moment was read are in the artifacts' rows, which are
   read after it, and what they refer to stays. So what an upload relied on before the store was listed stays.
3. While things are deleted, a flag lies in the store, from before the listing that they were found in. `publish` looks
   for the flag after its uploads, and if it is there tries again later; if not, it puts back what is missing, and
   commits. A sweep that ended before that look is repaired by it; one that begins after it lists young things.

The flag also keeps two servers from sweeping at once. One that was left behind by a server that died is removed when
that server is back, and by others when it is older than any sweep can be. Clocks of servers, workers and store may
differ by hours.

What lies under attempts/ is private: an attempt that has ended never becomes live again, so nobody needs what it left,
save its committed checkpoints.

A store belongs to one database: the first server that sweeps writes its mark, and no other ever deletes there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import janitor
from mvprune_service.db.database import Database
from mvprune_service.db.janitor import ArtifactKey, CheckpointKey
from mvprune_service.stores.base import FRESH_US, BlobStore, Entry, ObjectNotFound, StoreUnavailable
from mvprune_service.stores.layout import SWEEP_KEY

log = logging.getLogger(__name__)

GRACE_US = 2 * FRESH_US
OWNER_KEY = "OWNER"
_EVERY_US = 6 * 3600 * SECOND
_ATTEMPTS = "attempts/"
_CONTENTS = ("blobs/sha256/", "manifests/sha256/")
_PARTS = (_ATTEMPTS, *"0123456789abcdef")  # of a pass: the attempts, then contents by the first digit of their hash
_BATCH = 500  # deletions a step
_PAGE = 500  # rows a read
_SWEEP_SECONDS = 20.0
_ABANDONED_US = 240 * SECOND  # _SWEEP_SECONDS, the last deletion's retries, and a margin


class Sweeper:
    """Passes over the store every six hours, a part of it with each step. `owner` names the database, `server` the one
    among its servers."""

    def __init__(self, db: Database, store: BlobStore, *, owner: str, server: str, clock: Clock = system_clock) -> None:
        self._db = db
        self._store = store
        self._owner = owner.encode()
        self._server = server.encode()
        self._clock = clock
        self._parts: list[str] = []  # left of this pass
        self._next_us = 0

    async def step(self) -> None:
        """Deletes a batch, if a pass is due. Raises StoreUnavailable; the step is then repeated."""
        await asyncio.to_thread(self._remove_left_flag)
        if not self._parts:
            if self._clock() < self._next_us:
                return
            await self._begin()
        else:
            await self._go_on(self._parts[0])

    async def _begin(self) -> None:
        if await asyncio.to_thread(self._is_ours):
            await asyncio.to_thread(self._store.remove_torn, self._clock() - GRACE_US)
            self._parts = list(_PARTS)
        else:
            log.error("%s belongs to another server: nothing is ever removed from it", self._store.url)
        self._next_us = self._clock() + _EVERY_US

    async def _go_on(self, part: str) -> None:
        deleted = await (self._sweep_attempts() if part == _ATTEMPTS else self._sweep_contents(part))
        if deleted:
            log.info("removed %d objects that nothing refers to from %s", deleted, self._store.url)
        if deleted < _BATCH:
            self._parts.pop(0)

    def _is_ours(self) -> bool:
        return self._store.put(OWNER_KEY, self._owner, if_absent=True) or self._store.get(OWNER_KEY) == self._owner

    async def _sweep_attempts(self) -> int:
        before = self._clock() - GRACE_US
        old = await asyncio.to_thread(lambda: [e.key for e in self._store.list(_ATTEMPTS) if e.modified_us < before])
        by_attempt: dict[str, list[str]] = {}
        for key in old:
            by_attempt.setdefault(key.split("/")[1], []).append(key)
        uids, garbage = list(by_attempt), []
        for start in range(0, len(uids), _PAGE):
            page = uids[start : start + _PAGE]
            live = await self._db.read(janitor.live_attempts, page)
            committed = await self._db.read(janitor.committed_checkpoints, page)
            for uid in set(page) - live:
                garbage += [key for key in by_attempt[uid] if _checkpoint(key) not in committed]
        return await asyncio.to_thread(self._delete, garbage[:_BATCH])

    async def _sweep_contents(self, digit: str) -> int:
        now = self._clock()
        oldest = await self._db.read(janitor.oldest_live_attempt_us)
        before = (now if oldest is None else min(now, oldest)) - GRACE_US
        kept = await self._references(digit)
        return await asyncio.to_thread(self._delete_contents, digit, before, kept)

    async def _references(self, digit: str) -> set[str]:
        """Hashes with this first digit that artifacts refer to."""
        kept: set[str] = set()
        page: ArtifactKey | None = None
        while True:
            references, page = await self._db.read(janitor.page_of_references, page, _PAGE)
            kept.update(sha256 for sha256 in references if sha256.startswith(digit))
            if page is None:
                return kept

    def _delete_contents(self, digit: str, before_us: int, kept: set[str]) -> int:
        def garbage() -> Iterator[str]:
            entries = (entry for folder in _CONTENTS for entry in self._store.list(folder + digit))
            return _garbage(entries, before_us, kept)

        if next(garbage(), None) is None:
            return 0
        with self._flag():
            return self._delete(garbage())

    def _delete(self, keys: Iterable[str]) -> int:
        """Deletes up to a batch of keys, for a bounded time; returns how many."""
        deleted, deadline = 0, time.monotonic() + _SWEEP_SECONDS
        for key in keys:
            if deleted == _BATCH or time.monotonic() > deadline:
                break
            self._store.delete(key)
            deleted += 1
        return deleted

    @contextlib.contextmanager
    def _flag(self) -> Iterator[None]:
        if not self._store.put(SWEEP_KEY, self._server, if_absent=True):
            raise StoreUnavailable(f"{self._store.url}: another server sweeps it")
        try:
            yield
        finally:
            self._store.delete(SWEEP_KEY)

    def _remove_left_flag(self) -> None:
        """Between steps, a flag of this server's is its predecessor's."""
        for flag in self._store.list(SWEEP_KEY):
            with contextlib.suppress(ObjectNotFound):  # its sweep has just ended
                is_old = flag.modified_us < system_clock() - _ABANDONED_US
                if is_old or self._store.get(flag.key) == self._server:
                    self._store.delete(flag.key)


def _garbage(entries: Iterable[Entry], before_us: int, kept: set[str]) -> Iterator[str]:
    for entry in entries:
        if entry.modified_us < before_us and entry.key.rpartition("/")[2] not in kept:
            yield entry.key


def _checkpoint(key: str) -> CheckpointKey | None:
    """The checkpoint that an object under attempts/ is part of."""
    match key.split("/"):
        case [_, uid, "checkpoints", step, *_] if step.isdecimal():
            return CheckpointKey(uid, int(step))
    return None
