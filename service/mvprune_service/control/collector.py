"""Garbage collection of the store: blobs, manifests, markers, checkpoints, chunks of logs and of uploads, and torn
transfers that nothing refers to.

Blobs are shared, and an upload does not send a blob that the store has. No upload loses a blob to a collection:

1. An upload makes old objects young. `put_file` skips a blob only if it is younger than FRESH_US, and writes it again
   otherwise; `publish` always writes the manifest.
2. Only old objects are deleted: objects at least GRACE_US older than the beginning of the oldest live attempt, however
   long that attempt has been uploading. Attempts that succeeded before that moment was read have a row in `artifacts`.
   These rows are read after it, and what they refer to is kept. So an object that an upload relied on before the store
   was listed is kept.
3. While objects are deleted, a flag lies in the store. It is written before the listing that finds the objects.
   `publish` looks for the flag after its uploads. If it finds the flag, it fails, and the worker tries again later. If
   not, it uploads what is missing and commits. A collection that ended before that look is repaired by these uploads; a
   collection that begins after it lists young objects.

The flag also keeps two servers from collecting at once. A server that died leaves its flag behind: the same server
removes it after its restart, and others do once it is older than any step can be. Clocks of servers, workers and store
may differ by hours.

Objects under attempts/ belong to one attempt. An attempt that has ended never becomes live again, so nobody needs its
objects except committed checkpoints and the chunks of its log. The row of a chunk is written within a minute after its
object, or never: see log_mover.py. So an old object without a row has no row later either.

Objects under uploads/ have the uid of a row of `upload_chunks`. The row is written before the object, and a uid is
never used again. So an object without a row has no row later either: nobody needs it.

Three more conditions make fewer objects deletable. Nothing above depends on them:

- Quarantine. An object is not deleted when it is found to be garbage. The database notes its key, its modification time
  and the moment. A later pass deletes it if it has been garbage for the whole delay and has the same modification time.
  An upload makes an object young (1), so the delay starts again. A restored backup may have notes from before it was
  made. Each is about an object that nothing has used since, or about one whose modification time is different now. So
  objects that are newer than the backup are first noted after the restore.
- Ownership. Nothing is deleted unless all marks in the store are this database's: see ownership.py. They are compared
  before each step, and once a second while objects are deleted.
- Backups. A backup places a hold in the store, then takes a snapshot of the database, then copies what the snapshot
  refers to, then removes the hold. A step looks for holds after it has read what the database refers to, and before it
  deletes. If it finds a hold, it deletes nothing. If not, the hold was placed after that look, and the snapshot was
  taken after that read. Then the objects that the step deletes were garbage before the snapshot was taken, and by 1 to
  3 no later row refers to them either. So everything that a snapshot refers to stays until it is copied. The same is
  true for checkpoints, whose rows are deleted before the look: see janitor.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable, Iterator

from mvprune.common.units import size
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.ownership import Ownership
from mvprune_service.db import attempt_logs, janitor, uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.db.janitor import ArtifactKey, CheckpointKey
from mvprune_service.db.quarantine import Found, page_of_quarantine, put_in_quarantine, release
from mvprune_service.stores.base import FRESH_US, BlobStore, Entry, ObjectNotFound, StoreUnavailable
from mvprune_service.stores.layout import COLLECTION_KEY, MANIFESTS
from mvprune_service.stores.log_chunks import log_chunk_uid

log = logging.getLogger(__name__)

GRACE_US = 2 * FRESH_US
_EVERY_US = 6 * 3600 * SECOND
_DAY_US = 24 * 3600 * SECOND
_ATTEMPTS = "attempts/"
_UPLOADS = "uploads/"
_CONTENTS = ("blobs/sha256/", "manifests/sha256/")
# Of a pass: the attempts, the uploads, then contents by the first digit of their hash.
_PARTS = (_ATTEMPTS, _UPLOADS, *"0123456789abcdef")
_BATCH = 500  # deletions a step
_PAGE = 500  # rows a read or a write
_NOTES = 10_000  # objects put into quarantine a step
_STEP_SECONDS = 20.0
_LOOK_SECONDS = 1.0  # between looks at the store's marks while objects are deleted
_ABANDONED_US = 240 * SECOND  # _STEP_SECONDS, the last deletion's retries, and a margin


class Collector:
    """Passes over the store every six hours. Each step does a part of it.

    Args:
        ownership: compares the store's marks with the database.
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
        self._parts: list[str] = []  # that this pass has not done yet
        self._next_us = 0
        self._noted: list[Entry] = []  # in quarantine since this pass

    async def step(self) -> None:
        """Deletes a batch, if a pass is due. Raises StoreUnavailable, after which the step is repeated, and
        StoreNotOwned."""
        if self._parts:
            await self._go_on(self._parts[0])
        elif self._clock() >= self._next_us:
            await self._ownership.cover()
            await asyncio.to_thread(self._store.remove_torn, self._clock() - GRACE_US)
            self._parts = list(_PARTS)
            self._next_us = self._clock() + _EVERY_US

    def start_over(self) -> None:
        """The next step begins a pass."""
        self._parts, self._next_us, self._noted = [], 0, []

    async def _go_on(self, part: str) -> None:
        collect = {_ATTEMPTS: self._collect_attempts, _UPLOADS: self._collect_uploads}.get(part)
        if await (self._collect_contents(part) if collect is None else collect()):
            self._parts.pop(0)
        if not self._parts:
            self._say_noted()

    def _say_noted(self) -> None:
        """The objects that this pass has put into quarantine. A deleted artifact is no surprise only if its job was
        deleted."""
        noted, self._noted = self._noted, []
        artifacts = sum(entry.key.startswith(MANIFESTS) for entry in noted)
        if noted:
            log.log(
                _level(artifacts),
                "%s: %d artifacts, and %d objects (%s) in all, went into quarantine: no job refers to them. They are "
                'deleted in %g days; if they must not be, docs/operate.md, "Quarantine", has the steps',
                self._store.url,
                artifacts,
                len(noted),
                size(sum(entry.size for entry in noted)),
                self._quarantine_us / _DAY_US,
            )

    async def _old(self, folder: str) -> list[Entry]:
        before = self._clock() - GRACE_US
        return await asyncio.to_thread(lambda: [e for e in self._store.list(folder) if e.modified_us < before])

    async def _collect_uploads(self) -> bool:
        by_uid = {entry.key.removeprefix(_UPLOADS): entry for entry in await self._old(_UPLOADS)}
        uids, garbage = list(by_uid), []
        for start in range(0, len(uids), _PAGE):
            page = uids[start : start + _PAGE]
            known = await self._db.read(uploads.known_uids, page)
            garbage += [by_uid[uid] for uid in page if uid not in known]
        return await self._delete_due(_UPLOADS, garbage)

    async def _collect_attempts(self) -> bool:
        old = await self._old(_ATTEMPTS)
        by_attempt: dict[str, list[Entry]] = {}
        for entry in old:
            by_attempt.setdefault(entry.key.split("/")[1], []).append(entry)
        uids, garbage = list(by_attempt), []
        for start in range(0, len(uids), _PAGE):
            page = uids[start : start + _PAGE]
            live = await self._db.read(janitor.live_attempts, page)
            committed = await self._db.read(janitor.committed_checkpoints, page)
            chunks = await self._db.read(attempt_logs.log_chunk_uids, page)
            for uid in set(page) - live:
                garbage += [
                    entry
                    for entry in by_attempt[uid]
                    if _checkpoint(entry.key) not in committed and log_chunk_uid(entry.key) not in chunks
                ]
        return await self._delete_due(_ATTEMPTS, garbage)

    async def _delete_due(self, part: str, garbage: list[Entry]) -> bool:
        due, all_noted = await self._due(part, garbage)
        deleted = await asyncio.to_thread(self._delete, due)
        return all_noted and deleted < _BATCH

    async def _collect_contents(self, digit: str) -> bool:
        now = self._clock()
        oldest = await self._db.read(janitor.oldest_live_attempt_us)
        before = (now if oldest is None else min(now, oldest)) - GRACE_US
        kept = await self._references(digit)
        garbage = await asyncio.to_thread(lambda: list(self._garbage(digit, before, kept)))
        due, all_noted = await self._due(digit, garbage)
        deleted = await asyncio.to_thread(self._delete_contents, digit, before, kept, due) if due else 0
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
        """Notes new garbage, up to the limit of a step. Returns the garbage whose delay is over, and whether all new
        garbage was noted."""
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
        new = sorted((entry for entry in garbage if entry not in known), key=lambda entry: entry.key)
        for start in range(0, min(len(new), _NOTES), _PAGE):
            await self._db.write(put_in_quarantine, part, new[start : start + _PAGE])
        self._noted += new[:_NOTES]
        before = self._clock() - self._quarantine_us
        due = [entry for entry in garbage if entry in known and noted[entry.key].found_us <= before]
        return due, len(new) <= _NOTES

    def _garbage(self, digit: str, before_us: int, kept: set[str]) -> Iterator[Entry]:
        for folder in _CONTENTS:
            for entry in self._store.list(folder + digit):
                if entry.modified_us < before_us and entry.key.rpartition("/")[2] not in kept:
                    yield entry

    def _delete_contents(self, digit: str, before_us: int, kept: set[str], due: list[Entry]) -> int:
        deletable = set(due)
        with self._flag():
            return self._delete(entry for entry in self._garbage(digit, before_us, kept) if entry in deletable)

    def _delete(self, entries: Iterable[Entry]) -> int:
        """Deletes up to a batch of objects, for a bounded time; returns how many. Raises StoreUnavailable if the
        store no longer belongs to this database, or a backup is being made."""
        deleted, artifacts, began, looked = 0, 0, time.monotonic(), float("-inf")
        for entry in entries:
            now = time.monotonic()
            if deleted == _BATCH or now > began + _STEP_SECONDS:
                break
            if now > looked + _LOOK_SECONDS:
                if not self._ownership.may_delete():
                    why = "another database has marked it, or a backup has begun, so nothing more is deleted"
                    raise StoreUnavailable(f"{self._store.url}: {why}")
                looked = now
            self._store.delete(entry.key)
            deleted += 1
            artifacts += entry.key.startswith(MANIFESTS)
        if deleted:
            text = "removed %d objects that nothing refers to from %s, %d of them artifacts"
            log.log(_level(artifacts), text, deleted, self._store.url, artifacts)
        return deleted

    @contextlib.contextmanager
    def _flag(self) -> Iterator[None]:
        if not self._store.put(COLLECTION_KEY, self._server, if_absent=True):
            raise StoreUnavailable(f"{self._store.url}: another server collects garbage there")
        try:
            yield
        finally:
            self._store.delete(COLLECTION_KEY)

    def remove_left_flag(self) -> None:
        """Between steps, a flag of this server is left from before its restart. It is removed even if the store belongs
        to another database: it protects nothing, and uploads wait for it."""
        for flag in self._store.list(COLLECTION_KEY):
            with contextlib.suppress(ObjectNotFound):  # its collection has just ended
                is_old = flag.modified_us < system_clock() - _ABANDONED_US
                if is_old or self._store.get(flag.key) == self._server:
                    self._store.delete(flag.key)


def _level(artifacts: int) -> int:
    return logging.WARNING if artifacts else logging.INFO


def _checkpoint(key: str) -> CheckpointKey | None:
    """The checkpoint that an object under attempts/ is part of."""
    match key.split("/"):
        case [_, uid, "checkpoints", step, *_] if step.isdecimal():
            return CheckpointKey(uid, int(step))
    return None
