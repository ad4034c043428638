"""JobService."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable

from grpc.aio import ServicerContext as Context

from mvprune.common import tracing
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.api.access.errors import (
    Violation,
    bad,
    etag_mismatch,
    invalid,
    not_found,
    precondition,
    wrong_state,
)
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.checks.names import MAX_LABELS, read_change
from mvprune_service.api.feeds import UNREAD, Feed, Feeds
from mvprune_service.api.job_logs import JobLogs
from mvprune_service.api.log_reader import LogReader
from mvprune_service.api.messages import mapping
from mvprune_service.api.messages.filters import parse_filter, parse_order
from mvprune_service.api.messages.names import existing, parse_job, parse_parent
from mvprune_service.api.messages.pagination import make_page, page_size, read_number, read_token
from mvprune_service.api.project_feed import ProjectFeed
from mvprune_service.api.queue_page import queue_page
from mvprune_service.api.submissions import Submissions
from mvprune_service.changes import Changes
from mvprune_service.clock import SECOND
from mvprune_service.db import lifecycle, records, updates
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.domain.failures import note_on_retry
from mvprune_service.domain.machine import TERMINAL, Command, IllegalTransition, transition
from mvprune_service.observability import traces

_DEFAULT_GRACE_US, _LONGEST_GRACE_US = 10 * SECOND, 3600 * SECOND
_EVENTS = 200
_METRICS = 50  # names in a request
_POINTS = range(3, 1001)  # of a curve


class JobServicer(JobLogs, job_pb2_grpc.JobServiceServicer):
    """Jobs: submit, poll, watch, cancel, retry, delete."""

    def __init__(self, db: Database, changes: Changes, feeds: Feeds, submissions: Submissions, logs: LogReader) -> None:
        self._db = db
        self._changes = changes
        self._feeds = feeds
        self._submissions = submissions
        self._logs = logs

    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: Context) -> job_pb2.Job:
        with tracing.span("submit", traces.of_call(context)) as traceparent:
            return await self._submissions.create(request, traceparent)

    async def GetJob(self, request: job_pb2.GetJobRequest, context: Context) -> job_pb2.Job:
        return mapping.job(await self._job(parse_job(request.name)))

    async def ListJobs(self, request: job_pb2.ListJobsRequest, context: Context) -> job_pb2.ListJobsResponse:
        project, size = parse_parent(request.parent), page_size(request.page_size)
        wanted, order = parse_filter(request.filter), parse_order(request.order_by)
        query = hashlib.sha256(f"{request.filter}\n{request.order_by}".encode()).hexdigest()[:16]
        after = read_token(request.page_token, *order.key_types, query=query)
        rows = await self._db.read(records.page_of_jobs, project, wanted, order, after, size + 1)
        jobs, token = make_page(rows, size, mapping.job, lambda row: (query, *order.key(row)))
        return job_pb2.ListJobsResponse(jobs=jobs, next_page_token=token)

    async def WatchJob(
        self, request: job_pb2.WatchJobRequest, context: Context
    ) -> AsyncIterator[job_pb2.WatchJobResponse]:
        name, after = parse_job(request.name), request.after_sequence
        if after < 0:
            raise invalid(bad("after_sequence", after, "0 or more"))
        job = await self._job(name)
        if after > job.last_sequence:  # the caller saw another job of this name
            raise invalid(bad("after_sequence", after, f"0 to {job.last_sequence}, the newest event"))
        async with self._feeds.of(job.uid) as feed:
            version: int | None = UNREAD
            while True:
                await feed.change(version)
                version = feed.version
                if version is None:
                    raise not_found(str(name))
                behind = True
                while behind:
                    response = feed.after(after) or await self._page(request.name, feed, after)
                    after, behind = response.sequence, response.sequence < feed.sequence
                    yield response
                    if response.done:
                        return

    async def _page(self, name: str, feed: Feed, after: int) -> job_pb2.WatchJobResponse:
        rows = await self._db.read(records.events_of, feed.uid, after, _EVENTS)
        if not rows:
            raise not_found(name)  # deleted meanwhile
        return feed.page([mapping.event(row) for row in rows], after)

    async def WatchJobs(
        self, request: job_pb2.WatchJobsRequest, context: Context
    ) -> AsyncIterator[job_pb2.WatchJobsResponse]:
        project, wanted = parse_parent(request.parent), parse_filter(request.filter)
        async for response in ProjectFeed(self._db, self._changes, project, wanted).responses():
            yield response

    async def GetQueue(self, request: job_pb2.GetQueueRequest, context: Context) -> job_pb2.Queue:
        return await queue_page(self._db, self._submissions.capacity, request)

    async def UpdateJob(self, request: job_pb2.UpdateJobRequest, context: Context) -> job_pb2.Job:
        change, actor = read_change(request), current_principal().id
        return await self._change(
            request.name,
            lambda tx, job: updates.update(tx, job, change, most_labels=MAX_LABELS, actor=actor, etag=request.etag),
        )

    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: Context) -> job_pb2.Job:
        grace_us = request.grace.ToMicroseconds() if request.HasField("grace") else _DEFAULT_GRACE_US
        if not 0 <= grace_us <= _LONGEST_GRACE_US:
            raise invalid(Violation("grace", f"must be 0 s to 1 h, got {grace_us / SECOND:g} s"))
        actor = current_principal().id
        return await self._change(
            request.name,
            lambda tx, job: lifecycle.cancel(
                tx, job, reason=request.reason, grace_us=grace_us, actor=actor, etag=request.etag
            ),
        )

    async def RetryJob(self, request: job_pb2.RetryJobRequest, context: Context) -> job_pb2.Job:
        actor, note = current_principal().id, ""

        def work(tx: Tx, job: JobRow) -> JobRow:
            nonlocal note
            transition(job.state, Command.RETRY)  # the wrong state is reported before a full queue
            self._submissions.check_room(tx, job.project)
            note = note_on_retry(job.failure_reason)
            return lifecycle.retry(tx, job, actor=actor, from_scratch=request.from_scratch, etag=request.etag)

        answer = await self._change(request.name, work)
        answer.notes.extend([note] if note else [])
        return answer

    async def DeleteJob(self, request: job_pb2.DeleteJobRequest, context: Context) -> job_pb2.DeleteJobResponse:
        name = parse_job(request.name)

        def work(tx: Tx) -> None:
            job = lifecycle.lock_job_named(tx, name)
            if job is not None:
                lifecycle.remove(tx, job, etag=request.etag)
            elif not request.allow_missing:
                raise not_found(str(name))

        try:
            await self._db.write(work)
        except lifecycle.NotTerminal:
            raise precondition("JOB_NOT_FINISHED", f"{name} is not finished; cancel it first") from None
        except lifecycle.EtagMismatch:
            raise etag_mismatch(name) from None
        return job_pb2.DeleteJobResponse()

    async def ListJobEvents(
        self, request: job_pb2.ListJobEventsRequest, context: Context
    ) -> job_pb2.ListJobEventsResponse:
        job, size = await self._job(parse_job(request.parent, "parent")), page_size(request.page_size)
        after = read_number(request.page_token)
        rows = await self._db.read(records.events_of, job.uid, after, size + 1)
        events, token = make_page(rows, size, mapping.event, lambda row: (row.sequence,))
        return job_pb2.ListJobEventsResponse(events=events, next_page_token=token)

    async def ListAttempts(
        self, request: job_pb2.ListAttemptsRequest, context: Context
    ) -> job_pb2.ListAttemptsResponse:
        name, size = parse_job(request.parent, "parent"), page_size(request.page_size)
        job, after = await self._job(name), read_number(request.page_token)
        rows = await self._db.read(records.attempts_of, job.uid, after, size + 1)
        attempts, token = make_page(rows, size, lambda row: mapping.attempt(row, name), lambda row: (row.number,))
        return job_pb2.ListAttemptsResponse(attempts=attempts, next_page_token=token)

    async def ListMetrics(self, request: job_pb2.ListMetricsRequest, context: Context) -> job_pb2.ListMetricsResponse:
        name, size = parse_job(request.parent, "parent"), page_size(request.page_size)
        wanted, after = _wanted(request), read_number(request.page_token)
        job = await self._job(name)
        if request.max_points:
            rows = await self._db.read(records.curves_of, job.uid, wanted, request.max_points)
            return job_pb2.ListMetricsResponse(points=[mapping.metric(row) for row in rows])
        rows = await self._db.read(records.metrics_of, job.uid, after, size + 1, wanted)
        points, token = make_page(rows, size, mapping.metric, lambda row: (row.id,))
        return job_pb2.ListMetricsResponse(points=points, next_page_token=token)

    async def _change(self, given: str, work: Callable[[Tx, JobRow], JobRow]) -> job_pb2.Job:
        name = parse_job(given)

        def locked(tx: Tx) -> JobRow:
            return work(tx, existing(lifecycle.lock_job_named(tx, name), name))

        try:
            return mapping.job(await self._db.write(locked))
        except updates.TooManyLabels as error:
            raise invalid(bad("set_labels", error.count, f"at most {MAX_LABELS} labels of a job in all")) from None
        except lifecycle.EtagMismatch:
            raise etag_mismatch(name) from None
        except IllegalTransition as error:
            raise wrong_state(name, error.state, error.command, has_ended=error.state in TERMINAL) from None


def _wanted(request: job_pb2.ListMetricsRequest) -> records.Wanted:
    """The points that a request asks for. Raises ApiError."""
    violations = []
    if len(request.metrics) > _METRICS:
        violations.append(bad("metrics", len(request.metrics), f"at most {_METRICS} names"))
    if request.max_points and request.max_points not in _POINTS:
        violations.append(bad("max_points", request.max_points, "3 to 1,000"))
    if request.max_points and (request.page_size or request.page_token):
        violations.append(Violation("max_points", "must be used without page_size and page_token"))
    if violations:
        raise invalid(*violations)
    return records.Wanted(request.metrics, request.after_step if request.HasField("after_step") else None)
