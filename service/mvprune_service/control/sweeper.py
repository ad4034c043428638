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

Two more conditions make fewer objects deletable, so none of the above depends on them:

- Quarantine. An object is not deleted when it is found to be garbage. The database notes its key, its modification time
  and the moment, and the object is deleted by a later pass: only if it has been garbage for the whole delay, and only
  if its modification time is still the same. An upload makes an object young (1), so its delay begins anew. A backup
  that is restored may have notes from before it was made; each is about an object that nothing has used since, or whose
  modification time is another one now. So whatever is newer than the backup is first noted after the restore.
- Ownership. Nothing is deleted unless the store's mark is this database's: see ownership.py. It is compared before
  each step, and once a second while objects are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.ownership import Ownership
from mvprune_service.db import janitor
from mvprune_service.db.database import Database
from mvprune_service.db.janitor import ArtifactKey, CheckpointKey
from mvprune_service.db.quarantine import Found, page_of_quarantine, put_in_quarantine, release
from mvprune_service.stores.base import FRESH_US, BlobStore, Entry, ObjectNotFound, StoreUnavailable
from mvprune_service.stores.layout import SWEEP_KEY

log = logging.getLogger(__name__)

GRACE_US = 2 * FRESH_US
_EVERY_US = 6 * 3600 * SECOND
_ATTEMPTS = "attempts/"
_CONTENTS = ("blobs/sha256/", "manifests/sha256/")
_PARTS = (_ATTEMPTS, *"0123456789abcdef")  # of a pass: the attempts, then contents by the first digit of their hash
_BATCH = 500  # deletions a step
_PAGE = 500  # rows a read or a write
_NOTES = 10_000  # objects put into quarantine a step
_SWEEP_SECONDS = 20.0
_LOOK_SECONDS = 1.0  # between looks at the store's mark while objects are deleted
_ABANDONED_US = 240 * SECOND  # _SWEEP_SECONDS, the last deletion's retries, and a margin


class Sweeper:
    """Passes over the store every six hours, a part of it with each step.

    Args:
        ownership: what tells whose the store is.
        server: this server's name among those of the database.
        quarantine_us: how long an object must have been garbage before it is deleted.
    """

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        ownership: Ownership,
        *,
        server: str,
        quarantine_us: int,
        clock: Clock = system_clock,
    ) -> None:
        self._db = db
        self._store = store
        self._ownership = ownership
        self._server = server.encode()
        self._quarantine_us = quarantine_us
        self._clock = clock
        self._parts: list[str] = []  # left of this pass
        self._next_us = 0

    async def step(self, mark: bytes) -> None:
        """Deletes a batch, if a pass is due. `mark` is the store's, which is this database's. Raises StoreUnavailable,
        after which the step is repeated, and StoreNotOwned."""
        if self._parts:
            await self._go_on(self._parts[0], mark)
        elif self._clock() >= self._next_us:
            await self._ownership.renew()
            await asyncio.to_thread(self._store.remove_torn, self._clock() - GRACE_US)
            self._parts = list(_PARTS)
            self._next_us = self._clock() + _EVERY_US

    def start_over(self) -> None:
        """The next step begins a pass."""
        self._parts, self._next_us = [], 0

    async def _go_on(self, part: str, mark: bytes) -> None:
        done = await (self._sweep_attempts(mark) if part == _ATTEMPTS else self._sweep_contents(part, mark))
        if done:
            self._parts.pop(0)

    async def _sweep_attempts(self, mark: bytes) -> bool:
        before = self._clock() - GRACE_US
        old = await asyncio.to_thread(lambda: [e for e in self._store.list(_ATTEMPTS) if e.modified_us < before])
        by_attempt: dict[str, list[Entry]] = {}
        for entry in old:
            by_attempt.setdefault(entry.key.split("/")[1], []).append(entry)
        uids, garbage = list(by_attempt), []
        for start in range(0, len(uids), _PAGE):
            page = uids[start : start + _PAGE]
            live = await self._db.read(janitor.live_attempts, page)
            committed = await self._db.read(janitor.committed_checkpoints, page)
            for uid in set(page) - live:
                garbage += [entry for entry in by_attempt[uid] if _checkpoint(entry.key) not in committed]
        due, all_noted = await self._due(_ATTEMPTS, garbage)
        deleted = await asyncio.to_thread(self._delete, due, mark)
        return all_noted and deleted < _BATCH

    async def _sweep_contents(self, digit: str, mark: bytes) -> bool:
        now = self._clock()
        oldest = await self._db.read(janitor.oldest_live_attempt_us)
        before = (now if oldest is None else min(now, oldest)) - GRACE_US
        kept = await self._references(digit)
        garbage = await asyncio.to_thread(lambda: list(self._garbage(digit, before, kept)))
        due, all_noted = await self._due(digit, garbage)
        deleted = await asyncio.to_thread(self._delete_contents, digit, before, kept, due, mark) if due else 0
        return all_noted and deleted < _BATCH

    async def _references(self, digit: str) -> set[str]:
        """Hashes with this first digit that artifacts refer to."""
        kept: set[str] = set()
        page: ArtifactKey | None = None
        while True:
            references, page = await self._db.read(janitor.page_of_references, page, _PAGE)
            kept.update(sha256 for sha256 in references if sha256.startswith(digit))
            if page is None:
                return kept

    async def _due(self, part: str, garbage: list[Entry]) -> tuple[list[Entry], bool]:
        """The garbage of this part whose delay is over; the rest is noted, for as long as a step may take. Whether all
        of it could be."""
        noted: dict[str, Found] = {}
        page = await self._db.read(page_of_quarantine, part, "", _PAGE)
        while page:
            noted |= page
            page = await self._db.read(page_of_quarantine, part, next(reversed(page)), _PAGE)
        waiting = {entry.key for entry in garbage} if self._quarantine_us else set()
        gone = [key for key in noted if key not in waiting]
        for start in range(0, len(gone), _PAGE):
            await self._db.write(release, part, gone[start : start + _PAGE])
        if self._quarantine_us == 0:
            return garbage, True
        known = {entry for entry in garbage if entry.key in noted and noted[entry.key].modified_us == entry.modified_us}
        new = sorted((entry.key, entry.modified_us) for entry in garbage if entry not in known)
        for start in range(0, min(len(new), _NOTES), _PAGE):
            await self._db.write(put_in_quarantine, part, dict(new[start : start + _PAGE]))
        before = self._clock() - self._quarantine_us
        return [entry for entry in garbage if entry in known and noted[entry.key].found_us <= before], len(
            new
        ) <= _NOTES

    def _garbage(self, digit: str, before_us: int, kept: set[str]) -> Iterator[Entry]:
        for folder in _CONTENTS:
            for entry in self._store.list(folder + digit):
                if entry.modified_us < before_us and entry.key.rpartition("/")[2] not in kept:
                    yield entry

    def _delete_contents(self, digit: str, before_us: int, kept: set[str], due: list[Entry], mark: bytes) -> int:
        deletable = set(due)
        with self._flag():
            return self._delete((entry for entry in self._garbage(digit, before_us, kept) if entry in deletable), mark)

    def _delete(self, entries: Iterable[Entry], mark: bytes) -> int:
        """Deletes up to a batch of objects, for a bounded time; returns how many. Raises StoreUnavailable if the
        store's mark is no longer this one."""
        deleted, began, looked = 0, time.monotonic(), float("-inf")
        for entry in entries:
            now = time.monotonic()
            if deleted == _BATCH or now > began + _SWEEP_SECONDS:
                break
            if now > looked + _LOOK_SECONDS:
                if not self._ownership.is_still(mark):
                    raise StoreUnavailable(f"{self._store.url}: its mark has changed, so nothing more is deleted")
                looked = now
            self._store.delete(entry.key)
            deleted += 1
        if deleted:
            log.info("removed %d objects that nothing refers to from %s", deleted, self._store.url)
        return deleted

    @contextlib.contextmanager
    def _flag(self) -> Iterator[None]:
        if not self._store.put(SWEEP_KEY, self._server, if_absent=True):
            raise StoreUnavailable(f"{self._store.url}: another server sweeps it")
        try:
            yield
        finally:
            self._store.delete(SWEEP_KEY)

    def remove_left_flag(self) -> None:
        """Between steps, a flag of this server's is its predecessor's. It is removed whoever the store belongs to: it
        protects nothing any more, and uploads wait for it."""
        for flag in self._store.list(SWEEP_KEY):
            with contextlib.suppress(ObjectNotFound):  # its sweep has just ended
                is_old = flag.modified_us < system_clock() - _ABANDONED_US
                if is_old or self._store.get(flag.key) == self._server:
                    self._store.delete(flag.key)


def _checkpoint(key: str) -> CheckpointKey | None:
    """The checkpoint that an object under attempts/ is part of."""
    match key.split("/"):
        case [_, uid, "checkpoints", step, *_] if step.isdecimal():
            return CheckpointKey(uid, int(step))
    return None
