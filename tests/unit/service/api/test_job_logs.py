"""The last lines of a log, and those with a text or of a time."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from tests.logged import Logged
from tests.unit.service.conftest import Jobs

from mvprune.v1 import job_pb2
from mvprune_service.api import log_search
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db import attempt_logs
from mvprune_service.db.engine.database import Database
from mvprune_service.stores.base import BlobStore

LOG = b"""no time yet
2026-01-31 12:00:00 begins
2026-01-31 12:00:01 loss is NaN
Traceback: nan
2026-01-31 12:00:02 \xff ends"""


@pytest.fixture
async def logged(db: Database, store: BlobStore, jobs: Jobs) -> Logged:
    logged = await Logged.start(db, store, jobs)
    await logged.append(LOG)
    return logged


async def search(logged: Logged, **request: Any) -> job_pb2.SearchLogsResponse:
    asked = ParseDict({"attempt": logged.name} | request, job_pb2.SearchLogsRequest())
    return await logged.servicer.SearchLogs(asked, None)  # type: ignore[arg-type]


async def found(logged: Logged, **request: Any) -> list[str]:
    return [line.text for line in (await search(logged, **request)).lines]


async def test_lines_are_found_by_their_text_and_their_time(logged: Logged) -> None:
    assert len(await found(logged)) == 5
    assert await found(logged, query="NAN") == ["2026-01-31 12:00:01 loss is NaN", "Traceback: nan"]
    assert await found(logged, attempt="projects/p/jobs/a/attempts/-", query="begins") == ["2026-01-31 12:00:00 begins"]
    # A line without a time has that of the line before it; those before the first time are of no time.
    later = {"startTime": "2026-01-31T12:00:01Z"}
    assert await found(logged, **later) == LOG.decode(errors="replace").split("\n")[2:]
    assert await found(logged, **later, endTime="2026-01-31T12:00:02Z") == LOG.decode(errors="replace").split("\n")[2:4]
    last = (await search(logged, query="ends")).lines[0]
    assert (last.offset, last.time.seconds) == (LOG.rindex(b"2026"), 1_769_860_802)


async def test_a_search_goes_on_where_it_ended(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await search(logged, pageSize=2)
    second = await search(logged, pageSize=2, pageToken=first.next_page_token)
    third = await search(logged, pageSize=2, pageToken=second.next_page_token)
    lines = [line.text for page in (first, second, third) for line in page.lines]
    assert lines == LOG.decode(errors="replace").split("\n")
    assert third.next_page_token == ""
    with pytest.raises(ApiError) as refused:
        await search(logged, query="other", pageToken=first.next_page_token)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT

    await logged.append(b"\n" + 3 * (b"x" * 70 + b"\n"))
    monkeypatch.setattr(log_search, "READ_BYTES", 100)
    pages, token = 0, "begin"
    while token:
        page = await search(logged, query="ends", pageToken="" if token == "begin" else token)
        token, pages = page.next_page_token, pages + 1
    assert pages > 1, "no call reads all of a long log"


async def test_a_line_without_an_end_is_cut(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_LONGEST", 64)
    await logged.append(b"\n" + b"y" * 200_000)
    texts = await found(logged, query="yyy")
    assert sum(map(len, texts)) > 0
    assert max(map(len, texts)) <= 4096


@pytest.mark.parametrize("lines", [1, 2, 4, 5, 6, 10_000])
async def test_a_stream_begins_with_the_last_lines(logged: Logged, lines: int) -> None:
    for log in (LOG, LOG + b"\n"):
        tail = b"".join([message.data async for message in logged.follow(follow=False, tail_lines=lines)])
        assert tail == b"".join(log.splitlines(keepends=True)[-lines:])
        await logged.append(b"\n" if log is LOG else b"")


async def test_a_log_that_was_cut_has_last_lines_too(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in (
        (attempt_logs, "LOG_CAP", len(LOG) + 1),
        (attempt_logs, "_PIECE_BYTES", 64),
        (log_search, "_STEP", 16),
        (log_search, "READ_BYTES", 128),
    ):
        monkeypatch.setattr(module, name, value)
    await logged.append(b"\nthe last that is kept\n")
    for _ in range(10):
        await logged.append(b"dropped " * 100)
    tail = b"".join([message.data async for message in logged.follow(follow=False, tail_lines=1)])
    assert tail == b"the last that is kept\n"


async def test_refused_requests(logged: Logged) -> None:
    for request in ({"attempt": "x"}, {"query": "x" * 201}, {"pageToken": "x"}, {"pageSize": -1}):
        with pytest.raises(ApiError) as refused:
            await search(logged, **request)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    for options in ({"tail_lines": -1}, {"tail_lines": 10_001}, {"tail_lines": 1, "offset": 1}):
        with pytest.raises(ApiError) as refused:
            await anext(logged.follow(**options))
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(ApiError) as refused:
        await search(logged, attempt="projects/p/jobs/a/attempts/9")
    assert refused.value.code is grpc.StatusCode.NOT_FOUND
