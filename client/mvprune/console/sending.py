"""Models and data that a browser sends: a folder or a file becomes an upload of the project."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from mvprune.common.exceptions import bad_field
from mvprune.console.visit import Visit

MAX_FILES = 2000
MAX_BYTES = 50 << 30
_PART = re.compile(r"[^\x00-\x1f\x7f/\\:]{1,255}")
_LONGEST = 4096  # characters of a path


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
