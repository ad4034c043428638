"""What a client does to send content."""

from __future__ import annotations

import asyncio
import hashlib
import random
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc
import pytest
from google.rpc import error_details_pb2
from tests.refusals import status_details

from mvprune.sources.uploads import CHUNK_BYTES
from mvprune.v1 import upload_pb2, upload_pb2_grpc
from mvprune_service.api.access.auth import Authenticator
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.uploads import UploadServicer
from mvprune_service.clock import Clock
from mvprune_service.control.ownership import Ownership
from mvprune_service.db.engine.database import Database
from mvprune_service.db.uploads import Limits
from mvprune_service.stores.base import BlobStore

from ..serving import serving

PIECE = 1 << 20
Url = upload_pb2.GenerateChunkUrlsResponse.Url


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def chunks_of(content: bytes) -> list[bytes]:
    return [content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES)]


def described(
    files: Mapping[str, bytes], kind: upload_pb2.Upload.Kind = upload_pb2.Upload.MODEL, name: str = "my-model"
) -> upload_pb2.Upload:
    """What a client announces of these files."""
    upload = upload_pb2.Upload(kind=kind, display_name=name)
    for path, content in files.items():
        upload.files.add(path=path, size_bytes=len(content), chunks=map(sha256, chunks_of(content)))
    return upload


class Sender:
    """A client of UploadService."""

    def __init__(self, stub: upload_pb2_grpc.UploadServiceStub, project: str = "p", token: str = "") -> None:
        self.stub = stub
        self.project = project
        self.metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def create(self, upload: upload_pb2.Upload, *, validate_only: bool = False) -> upload_pb2.Upload:
        request = upload_pb2.CreateUploadRequest(
            parent=f"projects/{self.project}", upload=upload, validate_only=validate_only
        )
        return await self.stub.CreateUpload(request, metadata=self.metadata)

    async def get(self, name: str) -> upload_pb2.Upload:
        return await self.stub.GetUpload(upload_pb2.GetUploadRequest(name=name), metadata=self.metadata)

    async def put(self, name: str, content: bytes, chunk: str = "") -> None:
        """Sends `content` as a chunk."""

        async def pieces() -> AsyncIterator[upload_pb2.PutChunkRequest]:
            yield upload_pb2.PutChunkRequest(name=name, chunk=chunk or sha256(content), data=content[:PIECE])
            for start in range(PIECE, len(content), PIECE):
                yield upload_pb2.PutChunkRequest(data=content[start : start + PIECE])

        await self.stub.PutChunk(pieces(), metadata=self.metadata)

    async def urls(self, name: str, *chunks: str) -> dict[str, Url]:
        request = upload_pb2.GenerateChunkUrlsRequest(name=name, chunks=chunks)
        answer = await self.stub.GenerateChunkUrls(request, metadata=self.metadata)
        return {one.chunk: one for one in answer.urls}

    async def commit(self, name: str, *chunks: str) -> list[str]:
        request = upload_pb2.CommitChunksRequest(name=name, chunks=chunks)
        return list((await self.stub.CommitChunks(request, metadata=self.metadata)).rejected)

    async def delete(self, name: str, *, allow_missing: bool = False) -> None:
        request = upload_pb2.DeleteUploadRequest(name=name, allow_missing=allow_missing)
        await self.stub.DeleteUpload(request, metadata=self.metadata)

    async def send(self, files: Mapping[str, bytes], **described_as: object) -> upload_pb2.Upload:
        """Sends all of an upload that is missing, and returns it."""
        upload = await self.create(described(files, **described_as))  # type: ignore[arg-type]
        contents = {sha256(chunk): chunk for content in files.values() for chunk in chunks_of(content)}
        for chunk in upload.missing:
            await self.put(upload.name, contents[chunk])
        return await self.get(upload.name)


@asynccontextmanager
async def sending(
    db: Database,
    store: BlobStore,
    clock: Clock,
    *,
    max_bytes: int = 1 << 40,
    max_parts: int = 1 << 20,
    authenticator: Authenticator | None = None,
) -> AsyncIterator[Sender]:
    """A client of a server that takes uploads."""
    calls = Calls(authenticator)
    limits = Limits(max_bytes, max_parts)
    servicer = UploadServicer(db, store, Ownership(db, store), limits=limits, upload_days=1.0, clock=clock)
    upload_pb2_grpc.add_UploadServiceServicer_to_server(servicer, calls)
    async with serving(calls) as channel:
        yield Sender(upload_pb2_grpc.UploadServiceStub(channel))


async def http_put(to: Url, content: bytes) -> int:
    """The status of a PUT."""

    def put() -> int:
        request = urllib.request.Request(to.url, data=content, headers=dict(to.headers), method="PUT")  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    return await asyncio.to_thread(put)


class Refusal(NamedTuple):
    """How a call failed."""

    code: str
    reason: str
    fields: dict[str, str]
    message: str


async def refusal(call: Awaitable[object]) -> Refusal:
    """How a call fails that must."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status_details(caught.value):
        detail.Unpack(info)
        detail.Unpack(bad)
    fields = {violation.field: violation.description for violation in bad.field_violations}
    return Refusal(caught.value.code().name, info.reason, fields, str(caught.value.details()))
