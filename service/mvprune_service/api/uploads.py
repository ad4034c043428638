"""UploadService: models and data that clients send, in chunks.

A chunk is stored only when its bytes have its SHA-256. The server computes the digest of the whole itself.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence

import grpc
from grpc.aio import ServicerContext as Context

from mvprune.sources import uploads as sent
from mvprune.sources.references import InvalidReference
from mvprune.v1 import upload_pb2, upload_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError, Violation, bad, finding, invalid, not_found, precondition
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.access.shares import Shares
from mvprune_service.api.access.threads import Threads
from mvprune_service.api.checks.lost_chunks import is_stored
from mvprune_service.api.messages.lists import UPLOAD_LIST
from mvprune_service.api.messages.mapping import timestamp
from mvprune_service.api.messages.names import existing, parse_parent, parse_upload
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.ownership import Ownership
from mvprune_service.db import uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.uploads import ChunkRow, ListedUploadRow, UploadRow
from mvprune_service.db.upload_uses import count_users
from mvprune_service.fair import OWNER
from mvprune_service.stores.base import BlobStore, StoreFull
from mvprune_service.stores.layout import upload_key

_DAY_US = 24 * 3600 * SECOND
_URLS, _COMMITS = 100, 16  # chunks of a request
_URL_SECONDS = 900
_AT_ONCE = 8  # questions to the store: each takes the memory of a chunk
_CHUNKS_AT_ONCE = 32  # that are received: each takes its memory
_OF_EACH = 8  # project
_CHUNK_SECONDS = 600.0  # until it must have arrived
_KINDS = {upload_pb2.Upload.MODEL: sent.Kind.MODEL, upload_pb2.Upload.DATA: sent.Kind.DATA}
_UNITS = {"stored_bytes": "bytes", "parts": "files and chunks"}
_NUMBERS = {kind: number for number, kind in _KINDS.items()}


class UploadServicer(upload_pb2_grpc.UploadServiceServicer):
    """Uploads: announced, sent, listed, deleted.

    Args:
        ownership: marks the store before a chunk gets there.
        limits: of a project's uploads.
        upload_days: how long an upload is kept while no job uses it.
    """

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        ownership: Ownership,
        *,
        limits: uploads.Limits,
        upload_days: float,
        clock: Clock = system_clock,
    ) -> None:
        self._db = db
        self._store = store
        self._ownership = ownership
        self._limits = limits
        self._unused_us = int(upload_days * _DAY_US)
        self._clock = clock
        self._receiving = Shares(_CHUNKS_AT_ONCE, _OF_EACH, "chunks")
        self._threads = Threads("uploads", _AT_ONCE)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def CreateUpload(self, request: upload_pb2.CreateUploadRequest, context: Context) -> upload_pb2.Upload:
        project = parse_parent(request.parent)
        try:
            new = await self._threads.run(_new_upload, project, request.upload, current_principal().id)
            if request.validate_only:
                missing = await self._db.read(uploads.check, new, self._limits)
                return _announced(new, missing)
            row = await self._db.write(uploads.create, new, self._limits)
        except uploads.Contradiction as error:
            raise invalid(Violation("upload", str(error))) from None
        except uploads.TooMuch as error:
            raise _too_much(error) from None
        shown = await self._shown(row)
        if shown.missing:
            await self._ownership.cover()
        return shown

    async def GetUpload(self, request: upload_pb2.GetUploadRequest, context: Context) -> upload_pb2.Upload:
        name = parse_upload(request.name)
        return await self._shown(existing(await self._db.read(uploads.upload_named, name), name))

    async def ListUploads(
        self, request: upload_pb2.ListUploadsRequest, context: Context
    ) -> upload_pb2.ListUploadsResponse:
        project, asked = parse_parent(request.parent), UPLOAD_LIST.asked(request)
        rows = await self._db.read(uploads.page_of_uploads, project, asked.page)
        listed, token = asked.answer(rows, lambda row: self._upload(row, row.jobs))
        return upload_pb2.ListUploadsResponse(uploads=listed, next_page_token=token)

    async def DeleteUpload(
        self, request: upload_pb2.DeleteUploadRequest, context: Context
    ) -> upload_pb2.DeleteUploadResponse:
        name = parse_upload(request.name)
        try:
            await self._db.write(uploads.remove if request.allow_missing else finding(name, uploads.remove), name)
        except uploads.InUse as error:
            raise precondition("UPLOAD_IN_USE", f"{name} is used by {error}; delete these first") from None
        return upload_pb2.DeleteUploadResponse()

    async def GenerateChunkUrls(
        self, request: upload_pb2.GenerateChunkUrlsRequest, context: Context
    ) -> upload_pb2.GenerateChunkUrlsResponse:
        chunks = await self._chunks(request.name, request.chunks, _URLS)
        response = upload_pb2.GenerateChunkUrlsResponse()
        for chunk in chunks:
            if chunk.is_ready:  # there is nothing to send
                continue
            key = upload_key(chunk.uid)
            signed = await self._threads.run(self._store.presign_put, key, chunk.size_bytes, chunk.sha256, _URL_SECONDS)
            if signed is None:
                return upload_pb2.GenerateChunkUrlsResponse()
            expires = timestamp(self._clock() + _URL_SECONDS * SECOND)
            response.urls.add(chunk=chunk.sha256, url=signed.url, headers=signed.headers, expire_time=expires)
        return response

    async def CommitChunks(
        self, request: upload_pb2.CommitChunksRequest, context: Context
    ) -> upload_pb2.CommitChunksResponse:
        name = parse_upload(request.name)
        chunks = await self._chunks(request.name, request.chunks, _COMMITS)
        waiting = [chunk for chunk in chunks if not chunk.is_ready]
        are_right = await asyncio.gather(*(self._threads.run(is_stored, self._store, chunk) for chunk in waiting))
        right = [chunk for chunk, is_right in zip(waiting, are_right, strict=True) if is_right]
        if right:
            await self._note_ready(name, right)
        return upload_pb2.CommitChunksResponse(rejected=[chunk.sha256 for chunk in waiting if chunk not in right])

    async def PutChunk(
        self, requests: AsyncIterator[upload_pb2.PutChunkRequest], context: Context
    ) -> upload_pb2.PutChunkResponse:
        first = await anext(requests)
        (chunk,) = await self._chunks(first.name, [first.chunk], 1, "chunk")
        if chunk.is_ready:
            return upload_pb2.PutChunkResponse()
        async with self._receiving.place(OWNER.get()):
            content = await _received(chunk, first, requests)
            try:
                await self._threads.run(_put, self._store, chunk, content)
            except StoreFull:
                message = "the artifact store has no room left; ask the operator to free some"
                raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", message) from None
        await self._note_ready(parse_upload(first.name), [chunk])
        return upload_pb2.PutChunkResponse()

    async def _chunks(self, given: str, wanted: Sequence[str], most: int, field: str = "chunks") -> list[ChunkRow]:
        """Chunks of an upload, each once, in the order of the request. Raises ApiError."""
        name = parse_upload(given)
        if not 1 <= len(wanted) <= most:
            raise invalid(bad(field, len(wanted), f"1 to {most} chunks"))
        found = await self._db.read(uploads.chunks_of, name, wanted)
        unknown = [sha256 for sha256 in wanted if sha256 not in found]
        if unknown and await self._db.read(uploads.upload_named, name) is None:
            raise not_found(str(name))
        if unknown:
            raise invalid(bad(field, unknown[0], "the SHA-256 of a chunk of the upload"))
        return [found[sha256] for sha256 in dict.fromkeys(wanted)]

    async def _note_ready(self, name: ids.UploadName, chunks: Sequence[ChunkRow]) -> None:
        gone = f"{name} any more: it was deleted while it was sent; send it again"
        await self._db.write(finding(gone, uploads.mark_ready), name, chunks)

    async def _shown(self, row: UploadRow) -> upload_pb2.Upload:
        """An upload with its files and what is missing."""
        jobs = await self._db.read(count_users, row.name)
        shown = self._upload(row, jobs)
        _add_files(shown, row.described())
        shown.missing.extend(await self._db.read(uploads.missing, row))
        return shown

    def _upload(self, row: UploadRow | ListedUploadRow, jobs: int) -> upload_pb2.Upload:
        return upload_pb2.Upload(
            name=str(row.name),
            kind=_NUMBERS[row.kind],
            display_name=row.display_name,
            state=upload_pb2.Upload.INCOMPLETE if row.ready_us is None else upload_pb2.Upload.READY,
            total_bytes=row.total_bytes,
            jobs=jobs,
            creator=row.creator,
            create_time=timestamp(row.create_us),
            expire_time=None if jobs else timestamp(row.used_us + self._unused_us),
        )


async def _received(
    chunk: ChunkRow, first: upload_pb2.PutChunkRequest, requests: AsyncIterator[upload_pb2.PutChunkRequest]
) -> bytes:
    """The content of a chunk, of the right size. Raises ApiError."""
    pieces, size = [first.data], len(first.data)
    try:
        async with asyncio.timeout(_CHUNK_SECONDS):
            async for request in requests:
                if request.name not in ("", first.name) or request.chunk not in ("", first.chunk):
                    raise invalid(Violation("chunk", "must be the same in all requests of a call; call once for each"))
                pieces.append(request.data)
                size += len(request.data)
                if size > chunk.size_bytes:
                    break
    except TimeoutError:
        message = f"a chunk must arrive within {_CHUNK_SECONDS:g} s"
        raise ApiError(grpc.StatusCode.DEADLINE_EXCEEDED, "REQUEST_TIMEOUT", message) from None
    if size != chunk.size_bytes:
        given = f"{size:,} bytes{' or more' if size > chunk.size_bytes else ''}"
        raise invalid(Violation("data", f"must have the {chunk.size_bytes:,} bytes of the chunk in all, got {given}"))
    return b"".join(pieces)


def _put(store: BlobStore, chunk: ChunkRow, content: bytes) -> None:
    """Stores a chunk. Raises ApiError unless it is that chunk."""
    found = hashlib.sha256(content).hexdigest()
    if found != chunk.sha256:
        text = (
            f"must have the SHA-256 {chunk.sha256}, got {found}; the file was changed while it was sent: send it again"
        )
        raise invalid(Violation("data", text))
    store.put(upload_key(chunk.uid), content)


def _new_upload(project: str, given: upload_pb2.Upload, creator: str) -> uploads.NewUpload:
    """The upload that a request announces. Raises ApiError."""
    kind = _KINDS.get(given.kind)
    if kind is None:
        raise invalid(Violation("upload.kind", "must be MODEL or DATA, got none"))
    if not sent.is_name(given.display_name):
        raise invalid(bad("upload.display_name", given.display_name, "the name of a file or folder, without '/'"))
    files = [sent.File(file.path, file.size_bytes, tuple(file.chunks)) for file in given.files]
    try:
        sent.check_files(kind, files)
    except InvalidReference as error:
        raise invalid(Violation("upload.files", str(error))) from None
    files.sort(key=lambda file: file.path)
    name = ids.UploadName(project, sent.digest(files))
    return uploads.NewUpload(name, kind, given.display_name, files, creator)


def _announced(new: uploads.NewUpload, missing: Iterable[str]) -> upload_pb2.Upload:
    """The answer of a request that stores nothing."""
    shown = upload_pb2.Upload(
        name=str(new.name),
        kind=_NUMBERS[new.kind],
        display_name=new.display_name,
        missing=missing,
        total_bytes=new.total_bytes,
        creator=new.creator,
    )
    shown.state = upload_pb2.Upload.INCOMPLETE if shown.missing else upload_pb2.Upload.READY
    _add_files(shown, new.files)
    return shown


def _add_files(shown: upload_pb2.Upload, files: Iterable[sent.File]) -> None:
    for file in files:
        shown.files.add(path=file.path, size_bytes=file.size_bytes, chunks=file.chunks)


def _too_much(error: uploads.TooMuch) -> ApiError:
    remedy = f"mvpctl project set {error.project} --max-upload-bytes"
    if error.what == "parts":
        remedy = "--max-upload-parts of the server"
    message = (
        f"the uploads of projects/{error.project} must have at most {error.limit:,} {_UNITS[error.what]} in all, got "
        f"{error.total:,} with this one; delete jobs and uploads that are not needed, or ask the operator for more: "
        f"{remedy}"
    )
    return ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", message)
