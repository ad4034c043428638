"""Chunks of complete uploads that the store has lost or changed: they are noted as missing, so that clients send them
again."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable

from mvprune_service.api.access.threads import Threads
from mvprune_service.db import uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.uploads import ChunkRow
from mvprune_service.stores.base import BlobStore, ObjectNotFound
from mvprune_service.stores.layout import upload_key

log = logging.getLogger(__name__)

_AT_ONCE = 4  # questions to the store: each may take the memory of a chunk


class LostChunks:
    """Asks the store for chunks, and notes those that it does not have as missing. Nothing else is believed: neither a
    worker's report nor an earlier answer of the store."""

    def __init__(self, db: Database, store: BlobStore) -> None:
        self._db = db
        self._store = store
        self._threads = Threads("lost-chunks", _AT_ONCE)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def note(self, project: str, chunks: Iterable[ChunkRow], *, by_content: bool) -> list[str]:
        """The SHA-256 of those chunks that are noted as missing from now on. Raises DatabaseUnavailable,
        StoreUnavailable.

        Args:
            by_content: whether each chunk is read, else only its size.
        """
        ask = is_stored if by_content else _has_size
        ready = [chunk for chunk in chunks if chunk.is_ready]
        are_there = await asyncio.gather(*(self._threads.run(ask, self._store, chunk) for chunk in ready))
        lost = [chunk for chunk, is_there in zip(ready, are_there, strict=True) if not is_there]
        if lost:
            await self._db.write(uploads.mark_lost, project, lost)
            log.warning("the artifact store has lost %d chunk(s) of uploads of projects/%s", len(lost), project)
        return [chunk.sha256 for chunk in lost]


def is_stored(store: BlobStore, chunk: ChunkRow) -> bool:
    """Whether the store has a chunk, with its content. Blocks; raises StoreUnavailable."""
    try:
        content = store.read(upload_key(chunk.uid), 0, chunk.size_bytes + 1)
    except ObjectNotFound:
        return False
    return len(content) == chunk.size_bytes and hashlib.sha256(content).hexdigest() == chunk.sha256


def _has_size(store: BlobStore, chunk: ChunkRow) -> bool:
    return store.size(upload_key(chunk.uid)) == chunk.size_bytes
