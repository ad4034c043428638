"""Moves logs beyond their tail from the database to the store.

The database keeps the last 16 KiB of each log. The rest moves in chunks: of an attempt that runs when there is a whole
chunk, of one that has ended when there are more than 32 KiB. Each chunk takes three steps:

1. A claim, in the database. For a minute no other server moves that log.
2. The object in the store. Its key has a new uid, so it replaces nothing.
3. One transaction, if the claim is not over: it records the chunk and deletes the rows.

So the store has a chunk before its rows are deleted, and a reader finds each byte in one place. If the store is away,
or the server is killed before step 3, the rows stay, and the log is claimed again after a minute. An object without a
row is garbage: see collector.py.

Nothing moves into a store that belongs to another database, whose garbage collection would delete it.
"""

from __future__ import annotations

import asyncio
import logging

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.ownership import Ownership, StoreNotOwned
from mvprune_service.db import attempt_logs
from mvprune_service.db.attempt_logs import Claimed, Packed
from mvprune_service.db.engine.database import Database
from mvprune_service.ids import new_uid
from mvprune_service.observability import metrics
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.log_chunks import log_chunk_key, put_log_chunk

log = logging.getLogger(__name__)

_CLAIM_US = 60 * SECOND
_AT_ONCE = 8  # chunks: of 1 MiB each
_BATCHES = 100  # a step


class LogMover:
    """Moves what is due. While the store does not answer, the rows stay."""

    def __init__(self, db: Database, store: BlobStore, clock: Clock = system_clock) -> None:
        self._db = db
        self._store = store
        self._clock = clock
        self._ownership = Ownership(db, store)

    async def step(self) -> None:
        """One round over the logs that are due."""
        if not await self._db.read(attempt_logs.has_due, self._clock()):
            return
        try:
            await self._ownership.check()
            for _ in range(_BATCHES):
                if not await self._move_batch():
                    return
        except StoreUnavailable as error:
            log.warning("logs wait for the store: %s", error)
        except StoreNotOwned:
            pass  # the janitor reports it

    async def _move_batch(self) -> bool:
        """Moves a chunk each of some logs. False if none is due. Raises StoreUnavailable."""
        claimed = await self._db.write(attempt_logs.claim_logs, _AT_ONCE, _CLAIM_US)
        chunks = [await self._db.read(attempt_logs.next_chunk, one) for one in claimed]
        puts = [asyncio.to_thread(self._put, *pair) for pair in zip(claimed, chunks, strict=True)]
        results = await asyncio.gather(*puts, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for one, packed in zip(claimed, results, strict=True):
            if not isinstance(packed, BaseException) and await self._db.write(
                attempt_logs.record_log_chunk, one, packed
            ):
                metrics.log_moved(packed.size_bytes if packed else 0)
        if errors:
            raise errors[0]
        return bool(claimed)

    def _put(self, claimed: Claimed, data: bytes) -> Packed | None:
        if not data:
            return None
        uid = new_uid(self._clock())
        sha256, stored_bytes = put_log_chunk(self._store, log_chunk_key(claimed.attempt_uid, uid), data)
        return Packed(uid, len(data), stored_bytes, sha256)
