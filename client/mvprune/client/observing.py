"""What a client sees of jobs as they wait and run: part of `Core`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Generic

from mvprune.client import convert, watch
from mvprune.client.models import (
    AnyJob,
    Attempt,
    JobEvent,
    JobRecord,
    JobUpdate,
    LogLine,
    MetricPoint,
    ProjectUpdate,
    Queue,
)
from mvprune.client.names import job_name
from mvprune.client.pages import listed
from mvprune.client.transport import Transport
from mvprune.v1 import job_pb2


class Observing(Generic[AnyJob]):
    """The methods of `Core` that follow jobs."""

    project: str
    _transport: Transport
    _bind: Callable[..., AnyJob]

    async def watch(self, job: str | JobRecord, *, after_sequence: int = 0) -> AsyncGenerator[JobUpdate[AnyJob], None]:
        """Iterates over a job's changes until it has ended. Reconnects after an interruption.

        Args:
            after_sequence: skips events up to this number.
        """
        async with aclosing(watch.watch(self._transport, self._name(job), after_sequence)) as messages:
            async for message in messages:
                yield convert.update(message, self._bind(**convert.job_fields(message.job)))

    async def watch_all(self, *, filter: str = "") -> AsyncGenerator[ProjectUpdate[AnyJob], None]:
        """Iterates over changes of the project's jobs, without end; see `list` for the filter. The first update says
        that changes are noticed from now on: list the jobs then. Reconnects after an interruption."""
        async with aclosing(watch.watch_all(self._transport, f"projects/{self.project}", filter)) as messages:
            async for message in messages:
                jobs = tuple(self._bind(**convert.job_fields(job)) for job in message.jobs)
                yield ProjectUpdate(jobs, tuple(message.removed), message.missed)

    async def queue(self, *, limit: int = 50) -> Queue:
        """Returns the queue as the project sees it, with its first `limit` queued jobs (at most 500)."""
        request = job_pb2.GetQueueRequest(parent=f"projects/{self.project}", page_size=limit)
        return convert.queue(await self._transport.call(self._transport.jobs.GetQueue, request))

    async def logs(self, job: str | JobRecord, *, follow: bool = False, tail: int = 0) -> AsyncGenerator[bytes, None]:
        """Iterates over chunks of the current attempt's log; with `follow`, until the job has ended.

        Args:
            job: its id, its name, or itself.
            follow: go on with what is written later, and with attempts to come.
            tail: begin with this many lines at the end of the log, at most 10,000; 0: all.
        """
        async with aclosing(watch.logs(self._transport, self._name(job), follow, tail)) as pieces:
            async for piece in pieces:
                yield piece

    async def search_logs(
        self,
        job: str | JobRecord,
        query: str = "",
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        attempt: int = 0,
        limit: int | None = None,
    ) -> AsyncGenerator[LogLine, None]:
        """Iterates over lines of a log, oldest first.

        Args:
            job: its id, its name, or itself.
            query: lines with this text, whatever its case; "": all.
            since: lines of this time or later, with a zone. A line without a time has that of the line before it.
            until: lines before this time.
            attempt: number of the attempt; 0: the current one.
            limit: lines at most; None: all.
        """
        request = job_pb2.SearchLogsRequest(attempt=f"{self._name(job)}/attempts/{attempt or '-'}", query=query)
        for field, moment in ((request.start_time, since), (request.end_time, until)):
            if moment is not None:
                field.FromDatetime(moment.astimezone(UTC))
        async for line in listed(self._transport, self._transport.jobs.SearchLogs, request, "lines", limit):
            yield LogLine(line.offset, line.text, convert.time_of(line, "time"))

    async def events(self, job: str | JobRecord) -> AsyncGenerator[JobEvent, None]:
        """Iterates over the job's events, oldest first."""
        request = job_pb2.ListJobEventsRequest(parent=self._name(job))
        async for event in listed(self._transport, self._transport.jobs.ListJobEvents, request, "events"):
            yield convert.event(event)

    async def attempts(self, job: str | JobRecord) -> AsyncGenerator[Attempt, None]:
        """Iterates over the job's attempts, oldest first."""
        request = job_pb2.ListAttemptsRequest(parent=self._name(job))
        async for attempt in listed(self._transport, self._transport.jobs.ListAttempts, request, "attempts"):
            yield convert.attempt(attempt)

    async def metrics(
        self, job: str | JobRecord, *, metrics: Iterable[str] = (), after_step: int | None = None
    ) -> AsyncGenerator[MetricPoint, None]:
        """Iterates over the recorded values in the order of their arrival.

        Args:
            job: its id, its name, or itself.
            metrics: names, at most 50; none: all.
            after_step: skips the points up to this step.
        """
        request = job_pb2.ListMetricsRequest(parent=self._name(job), metrics=metrics, after_step=after_step)
        async for point in listed(self._transport, self._transport.jobs.ListMetrics, request, "points"):
            yield convert.metric(point)

    async def curves(
        self,
        job: str | JobRecord,
        *,
        metrics: Iterable[str] = (),
        after_step: int | None = None,
        max_points: int = 300,
    ) -> Mapping[str, tuple[MetricPoint, ...]]:
        """Returns the recorded values of each metric, in the order of their steps. Of a step that several attempts
        recorded, the newest attempt's. Where a metric has more than `max_points` (3 to 1,000), those are returned that
        show the shape of its curve."""
        request = job_pb2.ListMetricsRequest(
            parent=self._name(job), metrics=metrics, after_step=after_step, max_points=max_points
        )
        found: dict[str, list[MetricPoint]] = {}
        for point in (await self._transport.call(self._transport.jobs.ListMetrics, request)).points:
            found.setdefault(point.metric, []).append(convert.metric(point))
        return {name: tuple(points) for name, points in found.items()}

    def _name(self, job: str | JobRecord) -> str:
        return job_name(job, self.project)
