"""How a checkpoint lies in a store.

    attempts/UID/checkpoints/STEP/FILE             what the trainer resumes from
    attempts/UID/checkpoints/STEP/manifest.json    written last; the control plane gets its SHA-256

Checkpoints are private to their attempt, not shared by content as artifacts are, so that deleting one is a matter of
only its own folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path

from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import (
    MANIFEST_FILE,
    StoredFile,
    download,
    get_manifest,
    listed_files,
    parse,
    read_chunks,
)


def checkpoint_prefix(attempt_uid: str, step: int) -> str:
    """The prefix of a checkpoint's keys."""
    return f"attempts/{attempt_uid}/checkpoints/{step}/"


def put_checkpoint(store: BlobStore, directory: Path, attempt_uid: str, step: int) -> str:
    """Uploads the files in `directory`; returns the SHA-256 of their manifest.

    Can be repeated with the same files; a step has one checkpoint. Raises ArtifactCorrupt for a folder without files,
    StoreUnavailable.
    """
    prefix = checkpoint_prefix(attempt_uid, step)
    files = [_describe(directory, path) for path in sorted(directory.rglob("*")) if path.is_file()]
    manifest = {"files": [asdict(file) for file in files]}
    for file in listed_files(manifest):
        store.put_file(prefix + file.path, directory / file.path, file.sha256)
    data = json.dumps(manifest).encode()
    store.put(prefix + MANIFEST_FILE, data)
    return hashlib.sha256(data).hexdigest()


def fetch_checkpoint(store: BlobStore, attempt_uid: str, step: int, manifest_sha256: str, directory: Path) -> None:
    """Downloads a checkpoint, every byte checked, into `directory`, which appears when all of it is there.

    Raises ArtifactCorrupt, StoreUnavailable, OSError; FileExistsError if `directory` is there already.
    """
    prefix = checkpoint_prefix(attempt_uid, step)
    aside = directory.with_name(f"{directory.name}.part")
    shutil.rmtree(aside, ignore_errors=True)
    files = listed_files(parse(get_manifest(store, prefix + MANIFEST_FILE, manifest_sha256)))
    try:
        download(store, files, lambda file: prefix + file.path, aside)
        aside.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def delete_checkpoint(store: BlobStore, attempt_uid: str, step: int) -> None:
    """Removes a checkpoint, or what is there of one. Raises StoreUnavailable."""
    prefix = checkpoint_prefix(attempt_uid, step)
    store.delete(prefix + MANIFEST_FILE)  # first: a checkpoint that is half gone is none
    for entry in list(store.list(prefix)):
        store.delete(entry.key)


def _describe(directory: Path, path: Path) -> StoredFile:
    hasher = hashlib.sha256()
    for chunk in read_chunks(path):
        hasher.update(chunk)
    return StoredFile(path.relative_to(directory).as_posix(), path.stat().st_size, hasher.hexdigest())
