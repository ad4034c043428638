"""ArtifactService."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
from grpc.aio import ServicerContext as Context

from mvprune.v1 import artifact_pb2, artifact_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError, Violation, bad, invalid, not_found
from mvprune_service.api.access.threads import Threads
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.lists import ARTIFACT_LIST
from mvprune_service.api.messages.names import existing, parse_parent, parsed
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.artifacts import ArtifactRow
from mvprune_service.stores.base import BlobStore, ObjectNotFound
from mvprune_service.stores.layout import blob_key, manifest_key

_CHUNK = 256 << 10
_TTL, _TTL_CAP = 900, 12 * 3600
_AT_ONCE = 8  # questions to the store


class ArtifactServicer(artifact_pb2_grpc.ArtifactServiceServicer):
    """Artifacts: read and download."""

    def __init__(self, db: Database, store: BlobStore, clock: Clock = system_clock) -> None:
        self._db = db
        self._store = store
        self._clock = clock
        self._threads = Threads("artifacts", _AT_ONCE)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def GetArtifact(self, request: artifact_pb2.GetArtifactRequest, context: Context) -> artifact_pb2.Artifact:
        return mapping.artifact(await self._artifact(request.name))

    async def ListArtifacts(
        self, request: artifact_pb2.ListArtifactsRequest, context: Context
    ) -> artifact_pb2.ListArtifactsResponse:
        project, asked = parse_parent(request.parent), ARTIFACT_LIST.asked(request)
        rows = await self._db.read(records.page_of_artifacts, project, asked.page)
        artifacts, token = asked.answer(rows, mapping.artifact)
        return artifact_pb2.ListArtifactsResponse(artifacts=artifacts, next_page_token=token)

    async def GenerateDownloadUrls(
        self, request: artifact_pb2.GenerateDownloadUrlsRequest, context: Context
    ) -> artifact_pb2.GenerateDownloadUrlsResponse:
        row = await self._artifact(request.name)
        ttl = request.ttl.seconds if request.HasField("ttl") else _TTL
        if ttl < 1:
            raise invalid(Violation("ttl", f"must be 1 s or more (more than 12 h means 12 h), got {ttl} s"))
        ttl = min(ttl, _TTL_CAP)
        keys = _keys(row)
        response = artifact_pb2.GenerateDownloadUrlsResponse()
        for path in request.paths or keys:
            url = await self._threads.run(self._store.presign, _key(keys, path), ttl)
            if url is None:
                return artifact_pb2.GenerateDownloadUrlsResponse()
            response.urls.add(path=path, url=url, expire_time=mapping.timestamp(self._clock() + ttl * SECOND))
        return response

    async def ReadFile(
        self, request: artifact_pb2.ReadFileRequest, context: Context
    ) -> AsyncIterator[artifact_pb2.ReadFileResponse]:
        key = _key(_keys(await self._artifact(request.name)), request.path)
        offset = request.offset
        if offset < 0:
            raise invalid(bad("offset", offset, "0 or more"))
        while True:
            try:
                data = await self._threads.run(self._store.read, key, offset, _CHUNK)
            except ObjectNotFound:
                message = f"{request.path} is no longer in the store"
                raise ApiError(grpc.StatusCode.DATA_LOSS, "BLOB_MISSING", message) from None
            yield artifact_pb2.ReadFileResponse(offset=offset, data=data, end=not data)
            if not data:
                return
            offset += len(data)

    async def _artifact(self, given: str) -> ArtifactRow:
        name = parsed(ids.parse_artifact(given), given, "projects/PROJECT/artifacts/SHA256")
        return existing(await self._db.read(records.artifact_named, name), name)


def _keys(row: ArtifactRow) -> dict[str, str]:
    files = {file["path"]: blob_key(file["sha256"]) for file in row.manifest["files"]}
    return {mapping.MANIFEST: manifest_key(row.sha256), **files}


def _key(keys: dict[str, str], path: str) -> str:
    if path not in keys:
        raise not_found(f"file {path[:200]!r} in the artifact; it has {', '.join(sorted(keys))}")
    return keys[path]
