"""The protocol of stores: a folder or an S3-compatible bucket."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mvprune_service.clock import SECOND

# put_file writes an object again if it is older than this. So garbage collection can tell from the age of an object
# that no upload relies on it.
FRESH_US = 12 * 3600 * SECOND

_SEGMENT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_CHUNK = 1 << 20
_MAX_KEY = 800  # bytes; S3 allows 1024, the rest is left to the store's own prefix


class StoreUnavailable(Exception):
    """The store cannot be used now. What it contains is unknown."""


class StoreDenied(StoreUnavailable):
    """The store refuses these credentials, or there are none. Waiting does not help."""


class StoreFull(StoreUnavailable):
    """The store is full, or its quota is used up. Waiting helps only if somebody frees space."""


class StoreDamaged(StoreUnavailable):
    """Something that is no object lies where one belongs. Waiting does not help: the operator has to move it away."""


class BadSource(Exception):
    """The file to upload cannot be read, or has other content than its SHA-256 says."""


class ObjectNotFound(Exception):
    """The store was asked and has no such object."""


@dataclass(frozen=True)
class Entry:
    """An object as a listing shows it."""

    key: str
    size: int
    modified_us: int  # by the store's clock


@dataclass(frozen=True)
class SignedPut:
    """A URL for a PUT.

    Attributes:
        url: with a signature, which is a secret.
        headers: to send with it.
    """

    url: str
    headers: Mapping[str, str]


def is_key(key: str) -> bool:
    """Whether `key` is what `check_key` lets pass."""
    return len(key) <= _MAX_KEY and all(_SEGMENT.fullmatch(segment) for segment in key.split("/"))


def check_key(key: str) -> str:
    """Returns `key`. Raises ValueError unless it is '/'-separated segments of letters, digits, '_', '-' and '.', none
    of which starts with a dot: relative, without '..', the same in a file system, in S3 and in a URL."""
    if not is_key(key):
        raise ValueError(
            f"key must be segments of letters, digits, '_', '-' and '.', separated by '/', got {key[:200]!r}"
        )
    return key


def check_prefix(prefix: str) -> str:
    """Returns `prefix`, the beginning of a key or "". Raises ValueError as check_key does."""
    if prefix:
        check_key(prefix.removesuffix("/"))
    return prefix


def check_range(offset: int, limit: int) -> None:
    """Raises ValueError unless `offset` and `limit` name a range of at least one byte."""
    if offset < 0 or limit < 1:
        raise ValueError(f"offset must be 0 or more and limit 1 or more, got {offset} and {limit}")


def checked(path: Path, sha256: str) -> Iterator[bytes]:
    """The content of a local file. Raises BadSource, after the last chunk, unless it has this SHA-256."""
    hasher = hashlib.sha256()
    try:
        with path.open("rb") as source:
            while chunk := source.read(_CHUNK):
                hasher.update(chunk)
                yield chunk
    except OSError as error:
        raise BadSource(f"{path} cannot be read: {error.strerror}") from error
    if hasher.hexdigest() != sha256:
        raise BadSource(f"{path} has the SHA-256 {hasher.hexdigest()}, not {sha256}: it was changed meanwhile")


class Readable(Protocol):
    """A reader of small objects. Raises StoreUnavailable."""

    def get(self, key: str) -> bytes:
        """Reads a small object. Raises ObjectNotFound."""


class BlobStore(Readable, Protocol):
    """Objects by key (see check_key). Methods block: call them from a thread. All raise StoreUnavailable (StoreDenied
    where credentials are the reason, StoreFull where room is, StoreDamaged where something is in the way) and
    ValueError for a malformed key."""

    @property
    def url(self) -> str:
        """The URL by which `open_store` opens this store: file:///folder or s3://bucket/prefix. No secrets in it."""

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """Writes a small object, whole or not at all. With `if_absent`, False if it was there already (kept); of
        callers that race, one gets True. A caller whose True was lost with the connection may get False from the
        retry: compare the content where that matters."""

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        """Uploads a file, whole or not at all; nothing is sent if an object of that key is there already, younger than
        FRESH_US, and its content is the file's. `sha256` is that of the file. Raises BadSource, OSError where there is
        no such file."""

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

    def presign_put(self, key: str, size: int, sha256: str, ttl_seconds: int) -> SignedPut | None:
        """A URL that takes an object by PUT, or None where the store has none (a folder).

        Args:
            key: of the object.
            size: its bytes.
            sha256: of its content. A store that checks it takes no other content.
            ttl_seconds: for which the URL is valid.
        """
