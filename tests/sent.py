"""What a client has sent, as the server has it: chunks in a store, and the message that says where they are."""

from __future__ import annotations

import uuid
from pathlib import Path

from mvprune.sources.uploads import CHUNK_BYTES, Kind, Reference, describe, digest
from mvprune.v1 import upload_pb2, worker_pb2
from mvprune_service.stores.base import BlobStore


def sent(path: Path, kind: Kind, store: BlobStore) -> worker_pb2.UploadedInput:
    """Puts a model's folder or a data file into a store."""
    files = describe(kind, path)
    upload = worker_pb2.UploadedInput(reference=str(Reference(digest(files), path.name)))
    for file in files:
        upload.files.append(upload_pb2.UploadFile(path=file.path, size_bytes=file.size_bytes, chunks=file.chunks))
        content = ((path / file.path) if kind is Kind.MODEL else path).read_bytes()
        for number, sha256 in enumerate(file.chunks):
            if sha256 not in upload.keys:
                upload.keys[sha256] = f"uploads/{uuid.uuid4()}"
                store.put(upload.keys[sha256], content[number * CHUNK_BYTES :][:CHUNK_BYTES])
    return upload
