"""The log of an attempt of a job, also of one that has ended long ago."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing

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
    attempt, wanted = _number(visit, "attempt", job.attempt), visit.asked("search")
    lines, size = list[str](), 0
    if attempt and wanted:
        found = visit.calls.search_logs(visit.job, wanted, attempt=attempt, limit=_LINES)
        lines = [line.text async for line in found]
    elif attempt:
        content, size = await visit.session.link.end_of_log(f"{visit.job}/attempts/{attempt}", _LINES)
        lines = content.decode(errors="replace").splitlines()
    follows = attempt == job.attempt and not job.state.is_terminal and not wanted
    return visit.page(
        "log.html",
        live=visit.path("live", job=job.id) if follows else "",
        job=job,
        attempt=attempt,
        lines=[_clean(line) for line in lines],
        is_full=len(lines) >= _LINES,
        wanted=wanted,
        size=size,
        follows=follows,
    )


async def text(visit: Visit) -> Response:
    """The bytes of a log from an offset on, as plain text."""
    job = await visit.calls.get(visit.job)
    attempt = _number(visit, "attempt", job.attempt)
    offset = _number(visit, "offset", 0)
    headers = {} if offset else {"content-disposition": f'attachment; filename="{job.id}-{attempt}.log"'}
    pieces = _bytes(visit, attempt, offset)
    first = await anext(pieces, b"")  # an error is a page of its own before anything is sent
    return StreamingResponse(_joined(first, pieces), media_type="text/plain; charset=utf-8", headers=headers)


async def _joined(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(rest):
        yield first
        async for piece in rest:
            yield piece


async def _bytes(visit: Visit, attempt: int, offset: int) -> AsyncGenerator[bytes, None]:
    if attempt:
        name = f"{visit.job}/attempts/{attempt}"
        async for piece in attempt_logs(visit.session.link.transport, name, follow=False, offset=offset):
            yield piece


def _clean(line: str) -> str:
    """What a terminal would show of a line."""
    text = _CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2])
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _number(visit: Visit, field: str, default: int) -> int:
    found = visit.asked(field)
    if not found:
        return default
    if not (found.isascii() and found.isdecimal() and len(found) < 16):
        raise bad_field(field, f"must be a whole number, got {found[:80]!r}")
    return int(found)
