"""Where artifacts live: a folder or an S3-compatible bucket, behind one protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol


class StoreUnavailable(Exception):
    """The store cannot be reached now. Says nothing about what is in it."""


class ObjectNotFound(Exception):
    """The store was asked and has no such object."""


class BlobStore(Protocol):
    """Objects by key ('/'-separated, relative). Methods block: call them from a thread. All raise StoreUnavailable."""

    @property
    def url(self) -> str:
        """What `open_store` opens this store from: file:///folder or s3://bucket/prefix. No secrets in it."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Writes a small object, whole or not at all. With `if_absent`, False if it was there already (kept)."""

    def put_file(self, key: str, path: Path) -> None:
        """Uploads a file, whole or not at all; nothing is sent if an object of that key and size is there already.
        For content-addressed keys."""

    def get(self, key: str) -> bytes:
        """Reads a small object. Raises ObjectNotFound."""

    def read(self, key: str, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`; b"" at or past the end. Raises ObjectNotFound."""

    def size(self, key: str) -> int | None:
        """Size in bytes, None if absent."""

    def delete(self, key: str) -> None:
        """Removes an object; absent ones are fine."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys that start with `prefix`, sorted."""

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        """A GET URL that supports Range, or None where the store has none (a folder)."""
