"""Stores for artifacts: `open_store` opens a BlobStore from a URL. Workers import this package too."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.local import LocalStore


def open_store(url: str, *, create: bool = True) -> BlobStore:
    """Opens file:///absolute/folder or s3://bucket/prefix (the bucket exists).

    A folder that is missing is created; without `create` it is away, as one whose disk is not mounted. Raises
    ValueError for any other URL, StoreUnavailable where a folder is away or cannot be made.
    """
    parts = urlsplit(url)
    plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme == "file" and plain and not parts.netloc and parts.path.startswith("/"):
        return LocalStore(Path(unquote(parts.path)), create=create)
    if parts.scheme == "s3" and plain and parts.netloc:
        from mvprune_service.stores.s3 import S3Store  # boto3: only where a bucket is used

        return S3Store(parts.netloc, parts.path.strip("/"))
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    raise ValueError(f"store must be file:///absolute/folder or s3://bucket/prefix, without credentials, got {shown!r}")
