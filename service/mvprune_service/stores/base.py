"""Where artifacts live: a folder or an S3-compatible bucket, behind one protocol."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mvprune_service.clock import SECOND

# An object that put_file finds to be older than this is written anew: whoever sweeps the store can tell by its age
# alone that no upload relies on it.
FRESH_US = 12 * 3600 * SECOND

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_MAX_KEY = 800  # bytes; S3 allows 1024, the rest is left to the store's own prefix


class StoreUnavailable(Exception):
    """The store cannot be used now. Says nothing about what is in it."""


class StoreDenied(StoreUnavailable):
    """The store refuses these credentials, or has none. Waiting does not help; a person must look."""


class ObjectNotFound(Exception):
    """The store was asked and has no such object."""


@dataclass(frozen=True)
class Entry:
    """An object as a listing shows it."""

    key: str
    size: int
    modified_us: int  # by the store's clock


def check_key(key: str) -> str:
    """Returns `key`. Raises ValueError unless it is '/'-separated segments of letters, digits, '_', '-' and '.', none
    of which starts with a dot: relative, without '..', the same in a file system, in S3 and in a URL."""
    if len(key) > _MAX_KEY or not all(_SEGMENT.fullmatch(segment) for segment in key.split("/")):
        raise ValueError(f"key {key[:200]!r}: segments of letters, digits, '_', '-' and '.', separated by '/'")
    return key


def check_prefix(prefix: str) -> str:
    """Returns `prefix`, the beginning of a key or "". Raises ValueError as check_key does."""
    if prefix:
        check_key(prefix.removesuffix("/"))
    return prefix


def check_range(offset: int, limit: int) -> None:
    """Raises ValueError unless `offset` and `limit` name a range of at least one byte."""
    if offset < 0 or limit < 1:
        raise ValueError(f"offset {offset}, limit {limit}: offset is 0 and up, limit 1 and up")


class BlobStore(Protocol):
    """Objects by key (see check_key). Methods block: call them from a thread. All raise StoreUnavailable (StoreDenied
    where credentials are the reason) and ValueError for a malformed key."""

    @property
    def url(self) -> str:
        """What `open_store` opens this store from: file:///folder or s3://bucket/prefix. No secrets in it."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Writes a small object, whole or not at all. With `if_absent`, False if it was there already (kept); of
        callers that race, one gets True. A caller whose True was lost with the connection may get False from the
        retry: compare the content where that matters."""

    def put_file(self, key: str, path: Path) -> None:
        """Uploads a file, whole or not at all; nothing is sent if an object of that key and size is there already
        and younger than FRESH_US. For content-addressed keys."""

    def get(self, key: str) -> bytes:
        """Reads a small object. Raises ObjectNotFound."""

    def read(self, key: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; b"" at or past the end. Raises ObjectNotFound."""

    def size(self, key: str) -> int | None:
        """Size in bytes, None if absent."""

    def delete(self, key: str) -> None:
        """Removes an object; absent ones are fine."""

    def list(self, prefix: str) -> Iterator[Entry]:
        """The objects whose key starts with `prefix` (any beginning of a key, "" for all), each once, in no promised
        order: stores differ."""

    def remove_torn(self, before_us: int) -> None:
        """Removes what uploads left that began before `before_us` and never ended: what no key leads to."""

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        """A GET URL that supports Range, or None where the store has none (a folder)."""
