"""Reads logs of attempts, wherever their parts are."""

from __future__ import annotations

import grpc

from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.threads import Threads
from mvprune_service.db import attempt_logs
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.attempts import LogChunkRow
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import ArtifactCorrupt
from mvprune_service.stores.log_chunks import log_chunk_key, read_log_chunk

_ROWS_BYTES = 64 << 10  # of one read from the database
_AT_ONCE = 8  # reads from the store


class LogReader:
    """Reads a log as if the database had all of it."""

    def __init__(self, db: Database, store: BlobStore) -> None:
        self._db = db
        self._store = store
        self._threads = Threads("logs", _AT_ONCE)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def read(self, attempt_uid: str, offset: int) -> bytes:
        """Bytes of the log from `offset` on, at most 1 MiB; b"" at its end. Raises ApiError if the store has lost
        them, StoreUnavailable."""
        found = await self._db.read(attempt_logs.read_log, attempt_uid, offset, _ROWS_BYTES)
        if isinstance(found, bytes):
            return found
        return (await self._threads.run(self._chunk, found))[offset - found.offset :]

    def _chunk(self, row: LogChunkRow) -> bytes:
        key = log_chunk_key(row.attempt_uid, row.uid)
        try:
            return read_log_chunk(self._store, key, row.sha256, row.stored_bytes)
        except ArtifactCorrupt as error:
            end = row.offset + row.size_bytes
            message = f"the store has lost the bytes {row.offset} to {end} of the log: {error}; read on from byte {end}"
            raise ApiError(grpc.StatusCode.DATA_LOSS, "LOG_LOST", message) from None
