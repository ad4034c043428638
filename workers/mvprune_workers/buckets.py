"""Fetches models and data files that lie in buckets into the cache that the jobs of a machine share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from mvprune.sources.buckets import BucketPath
from mvprune.sources.references import MAX_FILES, InvalidReference
from mvprune.sources.uploads import is_sent
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, Entry, ObjectNotFound, StoreDenied
from mvprune_workers.cache import BUCKETS, complete

_CHUNK = 8 << 20


def fetch_model(path: BucketPath, cache: Path) -> Path:
    """The folder with a model's files. Raises InvalidReference, StoreUnavailable, OSError."""
    return _fetch(path, cache, is_sent, "")


def fetch_file(path: BucketPath, cache: Path) -> Path:
    """A data file. Raises InvalidReference, StoreUnavailable, OSError."""
    folder, _, name = path.key.rpartition("/")
    return _fetch(BucketPath(path.bucket, folder), cache, lambda key: key == name, name) / name


def _fetch(path: BucketPath, cache: Path, wanted: Callable[[str], bool], prefix: str) -> Path:
    """A folder with the wanted objects below `path`. If one of them changes, the next call makes another folder."""
    try:
        store = open_store(str(path))
        entries = sorted((entry for entry in store.list(prefix) if wanted(entry.key)), key=lambda entry: entry.key)
        if not entries:
            raise InvalidReference(f"there is no {f'file {path}/{prefix}' if prefix else f'model in {path}'}")
        if len(entries) > MAX_FILES:
            raise InvalidReference(f"a model's folder must hold at most {MAX_FILES:,} files, got {path}")
        facts = [str(path), [[entry.key, entry.size, entry.modified_us] for entry in entries]]
        folder = cache / BUCKETS / hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        complete(folder, lambda copy: _copy(store, entries, copy))
        return folder
    except StoreDenied as error:  # waiting does not help, unlike for a store that is unavailable
        raise InvalidReference(f"the worker may not read {path}: {error}") from error


def _copy(store: BlobStore, entries: list[Entry], folder: Path) -> None:
    for entry in entries:
        target = folder / entry.key
        target.parent.mkdir(exist_ok=True)
        _copy_object(store, entry, target)


def _copy_object(store: BlobStore, entry: Entry, target: Path) -> None:
    written = 0
    try:
        with target.open("wb") as file:
            while chunk := store.read(entry.key, written, _CHUNK):
                written += file.write(chunk)
    except ObjectNotFound:
        written = -1
    if written != entry.size:
        raise InvalidReference(f"{entry.key} in {store.url} was changed while it was read; submit again")
