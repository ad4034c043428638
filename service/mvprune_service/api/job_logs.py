"""The logs of attempts: JobService's part that streams and searches them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from grpc.aio import ServicerContext as Context

from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.api import log_search
from mvprune_service.api.access.errors import bad, invalid, not_found
from mvprune_service.api.log_reader import LogReader
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.names import existing, parsed
from mvprune_service.api.messages.pagination import make_token, page_size, read_token
from mvprune_service.changes import Changes, wait_for_change
from mvprune_service.clock import SECOND
from mvprune_service.db import attempt_logs, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.attempts import AttemptRow
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL

_RECHECK_SECONDS = 10.0  # a stream looks again even if no change was announced
_PIECE = 64 << 10  # bytes of a message
_QUERY = 200  # characters


class JobLogs:
    """The RPCs about logs."""

    _db: Database
    _changes: Changes
    _logs: LogReader

    async def FollowLogs(
        self, request: job_pb2.FollowLogsRequest, context: Context
    ) -> AsyncIterator[job_pb2.FollowLogsResponse]:
        name, offset, lines = _attempt(request.attempt), request.offset, request.tail_lines
        if offset < 0:
            raise invalid(bad("offset", offset, "0 or more"))
        if not 0 <= lines <= log_search.MOST_LINES or (lines and offset):
            raise invalid(bad("tail_lines", lines, f"1 to {log_search.MOST_LINES:,}, without an offset"))
        job = await self._job(ids.JobName(name.project, name.job))
        with self._changes.of_job(job.uid) as changed:
            while True:
                attempt = await self._db.read(records.attempt_named, name)
                if attempt is not None:
                    # A retry must not add another attempt's bytes to this stream.
                    name = name._replace(number=attempt.number)
                    if lines:
                        end = attempt_logs.end_of_log(attempt)
                        offset = await log_search.start_of_tail(self._logs, attempt.uid, end, lines)
                        lines = 0
                    if data := await self._logs.read(attempt.uid, offset):
                        for start in range(0, len(data), _PIECE):
                            piece = data[start : start + _PIECE]
                            yield job_pb2.FollowLogsResponse(offset=offset, data=piece)
                            offset += len(piece)
                        continue
                elif name.number is not None:
                    raise not_found(str(name))
                job = await self._job(ids.JobName(name.project, name.job))
                # An attempt that has ended since its log was read may have written more.
                ended = job.state in TERMINAL if attempt is None else attempt.state not in LIVE_ATTEMPTS
                if ended or not request.follow:
                    yield job_pb2.FollowLogsResponse(offset=offset, end=True)
                    return
                await wait_for_change(changed, _RECHECK_SECONDS)

    async def SearchLogs(self, request: job_pb2.SearchLogsRequest, context: Context) -> job_pb2.SearchLogsResponse:
        name, size = _attempt(request.attempt), page_size(request.page_size)
        if len(request.query) > _QUERY:
            raise invalid(bad("query", len(request.query), f"at most {_QUERY} characters"))
        wanted = log_search.Wanted(
            request.query.casefold(), _seconds(request, "start_time"), _seconds(request, "end_time")
        )
        query = hashlib.sha256(f"{request.attempt}\n{wanted}".encode()).hexdigest()[:16]
        after: Any = read_token(request.page_token, int, int, int | None, query=query)
        number, start, last = after or (name.number, 0, None)
        attempt = await self._found(name._replace(number=number))
        if attempt is None:
            return job_pb2.SearchLogsResponse()
        found = await log_search.search(self._logs, attempt.uid, wanted, start, last, size)
        token = make_token(query, attempt.number, *found.next) if found.next else ""
        return job_pb2.SearchLogsResponse(lines=map(_line, found.lines), next_page_token=token)

    async def _found(self, name: ids.AttemptName) -> AttemptRow | None:
        """An attempt; None: the job has none yet. Raises ApiError."""
        attempt = await self._db.read(records.attempt_named, name)
        if attempt is None and name.number is None:
            await self._job(ids.JobName(name.project, name.job))
        elif attempt is None:
            raise not_found(str(name))
        return attempt

    async def _job(self, name: ids.JobName) -> JobRow:
        return existing(await self._db.look_up(records.job_named, name), name)


def _attempt(given: str) -> ids.AttemptName:
    return parsed(ids.parse_attempt(given), given, "projects/P/jobs/J/attempts/N or …/-", "attempt")


def _seconds(request: job_pb2.SearchLogsRequest, field: str) -> float | None:
    return getattr(request, field).ToMicroseconds() / SECOND if request.HasField(field) else None


def _line(line: log_search.Line) -> job_pb2.SearchLogsResponse.Line:
    time = None if line.time is None else mapping.timestamp(line.time * SECOND)
    return job_pb2.SearchLogsResponse.Line(offset=line.offset, text=line.text, time=time)
