"""Fetches models and data files that clients have sent into the cache that the jobs of a machine share.

Their content is in the artifact store, in chunks. What is fetched is checked against the digest in the reference: that
neither the store nor the control plane gave other content than was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from mvprune.sources.references import InvalidReference
from mvprune.sources.uploads import File, Kind, Reference, check_files, digest, parse
from mvprune.v1 import worker_pb2
from mvprune_service.stores.base import BlobStore, ObjectNotFound
from mvprune_workers.cache import UPLOADS, complete

_REMEDY = "; delete the upload and the jobs that use it, and submit again, which sends it again"


def fetch_upload(upload: worker_pb2.UploadedInput, kind: Kind, store: BlobStore, cache: Path) -> Path:
    """The folder with a model's files, or a data file.

    Raises:
        InvalidReference: the content is not what the reference says, or is gone.
        StoreUnavailable, OSError: it could not be read or written now.
    """
    reference = parse(upload.reference)
    files = [File(file.path, file.size_bytes, tuple(file.chunks)) for file in upload.files]
    check_files(kind, files)
    if digest(files) != reference.digest:
        raise _wrong(reference, f"its files have the digest {digest(files)}")
    folder = cache / UPLOADS / reference.digest
    keys = dict(upload.keys)  # a map of protobuf has "" for what it lacks
    complete(folder, lambda copy: _copy(reference, files, keys, store, copy))
    return folder / files[0].path if kind is Kind.DATA else folder


def _copy(reference: Reference, files: list[File], keys: Mapping[str, str], store: BlobStore, folder: Path) -> None:
    for file in files:
        with (folder / file.path).open("xb") as target:
            for sha256, size in zip(file.chunks, file.sizes(), strict=True):
                target.write(_chunk(reference, file.path, sha256, size, keys, store))


def _chunk(reference: Reference, name: str, sha256: str, size: int, keys: Mapping[str, str], store: BlobStore) -> bytes:
    try:
        content = store.read(keys[sha256], 0, size + 1)
    except (KeyError, ObjectNotFound):
        raise _wrong(reference, f"a part of {name} is missing in the artifact store") from None
    if len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
        raise _wrong(reference, f"a part of {name} was changed in the artifact store")
    return content


def _wrong(reference: Reference, problem: str) -> InvalidReference:
    return InvalidReference(f"{reference} must have the content that was sent, but {problem}{_REMEDY}")
