"""How a chunk of a log lies in a store.

    attempts/UID/logs/CHUNK_UID    a part of the attempt's log, compressed with gzip

A row of `log_chunks` says which part. It is written after the object.
"""

from __future__ import annotations

import gzip
import hashlib

from mvprune_service.stores.base import BlobStore, ObjectNotFound
from mvprune_service.stores.layout import ArtifactCorrupt

_LEVEL = 6  # of gzip


def log_chunk_key(attempt_uid: str, chunk_uid: str) -> str:
    """Where a chunk lies."""
    return f"attempts/{attempt_uid}/logs/{chunk_uid}"


def log_chunk_uid(key: str) -> str | None:
    """The uid of the chunk that lies at `key`; None if no chunk lies there."""
    match key.split("/"):
        case ["attempts", _, "logs", uid]:
            return uid
    return None


def put_log_chunk(store: BlobStore, key: str, data: bytes) -> tuple[str, int]:
    """Writes a chunk; returns the SHA-256 and the size of the object. Raises StoreUnavailable."""
    packed = gzip.compress(data, _LEVEL, mtime=0)
    store.put(key, packed)
    return hashlib.sha256(packed).hexdigest(), len(packed)


def read_log_chunk(store: BlobStore, key: str, sha256: str, stored_bytes: int) -> bytes:
    """The content of a chunk. Raises ArtifactCorrupt if the object is missing or has another SHA-256,
    StoreUnavailable."""
    try:
        packed = store.read(key, 0, stored_bytes)
    except ObjectNotFound:
        raise ArtifactCorrupt(f"{key} is missing") from None
    if hashlib.sha256(packed).hexdigest() != sha256:
        raise ArtifactCorrupt(f"{key} has other content than its SHA-256 says")
    return gzip.decompress(packed)
