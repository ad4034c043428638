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

_REMEDY = "; submit again from a machine that has it, which sends that part again"


class ContentLost(InvalidReference):
    """The store does not have the content that was sent.

    Attributes:
        chunks: SHA-256 of all chunks that it lacks, or that were changed.
    """

    def __init__(self, message: str, chunks: list[str]) -> None:
        super().__init__(message)
        self.chunks = chunks


def fetch_upload(upload: worker_pb2.UploadedInput, kind: Kind, store: BlobStore, cache: Path) -> Path:
    """The folder with a model's files, or a data file.

    Raises:
        ContentLost: the store does not have it as it was sent.
        InvalidReference: the control plane describes other content than the reference says.
        StoreUnavailable, OSError: it could not be read or written now.
    """
    reference = parse(upload.reference)
    files = [File(file.path, file.size_bytes, tuple(file.chunks)) for file in upload.files]
    check_files(kind, files)
    if digest(files) != reference.digest:
        problem = f"the server says that its files have the digest {digest(files)}"
        raise InvalidReference(f"{reference} must have the content that was sent, but {problem}")
    folder = cache / UPLOADS / reference.digest
    keys = dict(upload.keys)  # a map of protobuf has "" for what it lacks
    complete(folder, lambda copy: _copy(reference, files, keys, store, copy))
    return folder / files[0].path if kind is Kind.DATA else folder


def _copy(reference: Reference, files: list[File], keys: Mapping[str, str], store: BlobStore, folder: Path) -> None:
    """Goes on after a bad chunk, so that all are known at once."""
    bad: dict[str, str] = {}  # what is wrong, by the chunk's SHA-256
    for file in files:
        (folder / file.path).parent.mkdir(exist_ok=True)
        with (folder / file.path).open("xb") as target:
            for sha256, size in zip(file.chunks, file.sizes(), strict=True):
                content = _chunk(keys.get(sha256, ""), size, store)
                if content is None:
                    bad.setdefault(sha256, f"a part of {file.path} is missing in the artifact store")
                elif len(content) != size or hashlib.sha256(content).hexdigest() != sha256:
                    bad.setdefault(sha256, f"a part of {file.path} was changed in the artifact store")
                else:
                    target.write(content)
    if bad:
        first = next(iter(bad.values())) + (
            f" ({len(bad)} parts are missing or changed in all)" if len(bad) > 1 else ""
        )
        raise ContentLost(f"{reference} must have the content that was sent, but {first}{_REMEDY}", list(bad))


def _chunk(key: str, size: int, store: BlobStore) -> bytes | None:
    """The chunk, and one byte more if there is one; None if it is not there."""
    if not key:
        return None
    try:
        return store.read(key, 0, size + 1)
    except ObjectNotFound:
        return None
