"""Models and data that a browser sends: a folder or a file becomes an upload of the project.

Scripts send them as `mvpctl upload` does: they say which chunks there are, and send those that the server lacks. So an
upload that was interrupted goes on, also after a reload. Without scripts, the files of a form are sent as a whole.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mvprune.common.exceptions import bad_field
from mvprune.console.visit import Visit
from mvprune.sources.uploads import CHUNK_BYTES, File, Kind

MAX_FILES = 2000
MAX_BYTES = 50 << 30
_PART = re.compile(r"[^\x00-\x1f\x7f/\\:]{1,255}")
_LONGEST = 4096  # characters of a path
_CHUNKS_AT_ONCE = 16  # that are received: each takes its memory
_CHUNK_SECONDS = 120.0  # until it must have arrived


class Room:
    """The memory for chunks."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(_CHUNKS_AT_ONCE)

    async def put(self, visit: Visit) -> Response:
        """Sends a chunk on to the server. Raises HTTPException."""
        path = visit.request.path_params
        async with self._free:
            try:
                async with asyncio.timeout(_CHUNK_SECONDS):
                    content = await _received(visit.request)
            except TimeoutError:
                raise HTTPException(408, f"a chunk must arrive within {_CHUNK_SECONDS:g} s") from None
            name = f"projects/{visit.project}/uploads/{path['upload']}"
            await visit.session.link.put_chunk(name, path["chunk"], content)
        return Response(status_code=204)


async def begin(visit: Visit) -> Response:
    """Announces an upload. The answer says which chunks are missing; none: jobs can use it."""
    project = visit.project
    kind = Kind.DATA if visit.given("kind") == "data" else Kind.MODEL
    try:
        files = [File(str(path), int(size), tuple(map(str, chunks))) for path, size, chunks in _listed(visit)]
    except (TypeError, ValueError):
        raise bad_field("files", "must be a list of paths with their sizes and chunks") from None
    upload, missing = await visit.session.link.create_upload(project, kind, visit.given("name"), files)
    return JSONResponse({"reference": upload.reference, "digest": upload.digest, "missing": missing})


def _listed(visit: Visit) -> list[tuple[object, int, list[object]]]:
    found: list[tuple[object, int, list[object]]] = json.loads(visit.given("files"))
    return found


async def _received(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > CHUNK_BYTES:
            raise HTTPException(413, f"a chunk has at most {CHUNK_BYTES:,} bytes")
    return b"".join(pieces)


async def receive(visit: Visit, files: Sequence[UploadFile]) -> Response:
    """Sends what a browser has sent on to the server. The upload's reference is the answer for scripts."""
    files = [file for file in files if file.filename]
    if not files:
        raise bad_field("file", "must be a file, or a model's folder")
    places = [place_of(file.filename or "") for file in files]
    with tempfile.TemporaryDirectory(prefix="mvprune-console-") as scratch:
        root = Path(scratch) / "sent"
        root.mkdir()
        for file, place in zip(files, places, strict=True):
            await asyncio.to_thread(_write, file, root.joinpath(*place))
        kind = "data" if len(places) == 1 and len(places[0]) == 1 else "model"
        first = places[0][0]
        if kind == "model" and any(place[0] != first or len(place) == 1 for place in places):
            raise bad_field("file", "must be one data file, or one model's folder")
        upload = await visit.calls.upload(root / first, kind="data" if kind == "data" else "model")
    if "application/json" in visit.request.headers.get("accept", ""):
        return JSONResponse({"reference": upload.reference, "name": upload.display_name})
    return visit.go(visit.path("uploads"))


def place_of(name: str) -> tuple[str, ...]:
    """model/config.json -> ("model", "config.json"). Raises InvalidArgument for a path that leads elsewhere."""
    parts = tuple(name.split("/"))
    if len(name) > _LONGEST or any(part in (".", "..") or not _PART.fullmatch(part) for part in parts):
        raise bad_field("file", f"must be a path below its folder, got {name[:100]!r}")
    return parts


def check_length(length: str) -> None:
    """Refuses what is too long before any of it is read. Raises HTTPException."""
    if not length.isdecimal():
        raise HTTPException(411, "what is sent must have a Content-Length")
    if int(length) > MAX_BYTES:
        raise HTTPException(413, f"at most {MAX_BYTES >> 30} GiB may be sent by a browser; mvpctl upload sends more")


def _write(file: UploadFile, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as target:
            shutil.copyfileobj(file.file, target, 1 << 20)
    except FileExistsError:
        raise bad_field("file", f"{path.name!r:.100} is there twice") from None
