"""The log of an attempt of a job, also of one that has ended long ago."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncGenerator

from starlette.responses import Response, StreamingResponse

from mvprune.client.watch import attempt_logs
from mvprune.common.exceptions import bad_field
from mvprune.console.visit import Visit

_LINES = 2000  # of a page
_LONGEST = 2000  # characters of a line of a page
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")  # what steers terminals


async def page(visit: Visit) -> Response:
    """The end of a log, or the lines of it that contain a text."""
    job = await visit.calls.get(visit.job)
    attempt, wanted = _attempt(visit, job.attempt), visit.asked("search")
    lines, size, left_out = deque[tuple[int, str]](maxlen=_LINES), 0, 0
    async for number, line, end in _lines(visit, attempt):
        size = end
        if wanted.casefold() in line.casefold():
            left_out += len(lines) == _LINES
            lines.append((number, line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"))
    return visit.page(
        "log.html",
        live="" if job.state.is_terminal or wanted else visit.path("live", job=job.id),
        job=job,
        attempt=attempt,
        lines=lines,
        left_out=left_out,
        wanted=wanted,
        size=size,
        follows=attempt == job.attempt and not job.state.is_terminal,
    )


async def text(visit: Visit) -> Response:
    """The bytes of a log from an offset on, as plain text."""
    job = await visit.calls.get(visit.job)
    attempt = _attempt(visit, job.attempt)
    offset = _number(visit, "offset", 0)
    headers = {} if offset else {"content-disposition": f'attachment; filename="{job.id}-{attempt}.log"'}
    content = _bytes(visit, attempt, offset)
    return StreamingResponse(content, media_type="text/plain; charset=utf-8", headers=headers)


async def _bytes(visit: Visit, attempt: int, offset: int = 0) -> AsyncGenerator[bytes, None]:
    if attempt:
        name = f"{visit.job}/attempts/{attempt}"
        async for piece in attempt_logs(visit.session.link.transport, name, follow=False, offset=offset):
            yield piece


async def _lines(visit: Visit, attempt: int) -> AsyncGenerator[tuple[int, str, int], None]:
    """The lines of a log: number, text, and the bytes up to its end."""
    number, end, rest = 0, 0, b""
    async for piece in _bytes(visit, attempt):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            number, end = number + 1, end + len(line) + 1
            yield number, _clean(line), end
    if rest:
        yield number + 1, _clean(rest), end + len(rest)


def _clean(line: bytes) -> str:
    return _CONTROL.sub("", line.decode(errors="replace").rpartition("\r")[2] or line.decode(errors="replace"))


def _attempt(visit: Visit, newest: int) -> int:
    return _number(visit, "attempt", newest)


def _number(visit: Visit, field: str, default: int) -> int:
    found = visit.asked(field)
    if not found:
        return default
    if not (found.isascii() and found.isdecimal() and len(found) < 16):
        raise bad_field(field, f"must be a whole number, got {found[:80]!r}")
    return int(found)
