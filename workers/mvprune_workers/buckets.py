"""Models and data files in buckets: the supervisor, which has the credentials, fetches them for the trainer.

They are stored in the cache that the jobs of a machine share. `input_path` is where the trainer reads them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mvprune.artifact import WEIGHTS_FILE, read_manifest
from mvprune.artifact.header import open_header
from mvprune.sources.buckets import SCHEME, BucketPath, bucket_path
from mvprune.sources.references import MAX_FILES, InvalidReference, Roots
from mvprune.v1 import job_pb2
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, Entry, ObjectNotFound, StoreDenied
from mvprune_workers.cache import BUCKETS, aside, hold
from mvprune_workers.folders import Folders

_MODEL_FILES = {".json", ".safetensors", ".txt", ".model", ".jinja"}  # weights, configuration, tokenizer: no pickles
_CHUNK = 8 << 20


class BadInput(Exception):
    """An input in a bucket cannot be used; `reason` says whether it is the model or the data."""

    def __init__(self, reason: job_pb2.Failure.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def input_path(reference: str, folders: Folders) -> Path:
    """Where the trainer reads an input that is in a bucket."""
    return folders.inputs / hashlib.sha256(reference.encode()).hexdigest() / PurePosixPath(reference).name


@dataclass(frozen=True)
class Input:
    """An input of a job in a bucket: a model's folder, or a data file."""

    reference: str
    is_model: bool

    def fetch(self, roots: Roots, folders: Folders) -> None:
        """Fetches it to its `input_path`; can be repeated. Raises BadInput, StoreUnavailable, OSError."""
        try:
            path = bucket_path(self.reference, roots)
            if path is not None:
                fetched = (_fetch_model if self.is_model else _fetch_file)(path, folders.cache)
                _link(input_path(self.reference, folders), fetched)
        except InvalidReference as error:
            reason = job_pb2.Failure.INVALID_MODEL if self.is_model else job_pb2.Failure.INVALID_DATASET
            raise BadInput(reason, str(error)) from error


def inputs_of(spec: job_pb2.CompressionSpec) -> list[Input]:
    """The inputs of `spec` that are in buckets."""
    return _in_buckets((spec.model, spec.teacher.model), is_model=True) + _in_buckets(
        (spec.dataset.train, spec.dataset.validation), is_model=False
    )


def base_of(artifact: Path) -> list[Input]:
    """The base model of an artifact, if that is a delta and the model lies in a bucket. Raises ArtifactError."""
    is_delta = bool(open_header(artifact / WEIGHTS_FILE).base)
    return _in_buckets([read_manifest(artifact).model.name], is_model=True) if is_delta else []


def _in_buckets(references: Iterable[str], *, is_model: bool) -> list[Input]:
    return [Input(reference, is_model) for reference in references if reference.startswith(SCHEME)]


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(target)


def _fetch_model(path: BucketPath, cache: Path) -> Path:
    return _fetch(path, cache, _is_model_file, "")


def _fetch_file(path: BucketPath, cache: Path) -> Path:
    folder, _, name = path.key.rpartition("/")
    return _fetch(BucketPath(path.bucket, folder), cache, lambda key: key == name, name) / name


def _is_model_file(key: str) -> bool:
    return "/" not in key and PurePosixPath(key).suffix in _MODEL_FILES


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
        while not hold(folder):
            _copy(store, entries, folder)
        return folder
    except StoreDenied as error:  # waiting does not help, unlike for a store that is unavailable
        raise InvalidReference(f"the worker may not read {path}: {error}") from error


def _copy(store: BlobStore, entries: list[Entry], folder: Path) -> None:
    """Copies to a temporary folder and renames it, so that `folder` is complete whenever it exists."""
    with aside(folder) as scratch:
        copy = scratch / folder.name
        copy.mkdir()
        for entry in entries:
            _copy_object(store, entry, copy / entry.key)
        try:
            copy.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another job was faster
                raise


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
