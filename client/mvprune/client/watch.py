"""Streams of a job that outlive cuts: changes and logs; and how it has ended."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from mvprune.client.exceptions import JobCancelled, JobFailed
from mvprune.client.models import JobRecord, JobState
from mvprune.client.transport import Transport
from mvprune.v1 import job_pb2


async def watch(
    transport: Transport, name: str, after_sequence: int, deadline: float | None = None
) -> AsyncGenerator[job_pb2.WatchJobResponse, None]:
    """The updates of a job until its end; after a cut, those after the last sequence seen.

    Raises:
        DeadlinePassed, ServerUnreachable, RequestRefused: see `Transport.stream`.
    """
    cursor = after_sequence

    def start(timeout: float | None) -> Any:
        return transport.jobs.WatchJob(job_pb2.WatchJobRequest(name=name, after_sequence=cursor), timeout=timeout)

    async with aclosing(transport.stream(start, lambda message: message.done, deadline=deadline)) as messages:
        async for message in messages:
            cursor = max(cursor, message.sequence)
            yield message


async def watch_all(transport: Transport, parent: str, filter: str) -> AsyncGenerator[job_pb2.WatchJobsResponse, None]:
    """The changes of a project's jobs, without end. After a cut, one says that others may have been missed.

    Raises:
        ServerUnreachable, RequestRefused: see `Transport.stream`.
    """
    starts = 0

    def start(timeout: float | None) -> Any:
        nonlocal starts
        starts += 1
        return transport.jobs.WatchJobs(job_pb2.WatchJobsRequest(parent=parent, filter=filter), timeout=timeout)

    seen = 0
    async with aclosing(transport.stream(start, lambda message: False)) as messages:
        async for message in messages:
            if seen and starts > seen:
                message.missed = True
            seen = starts
            yield message


async def logs(transport: Transport, name: str, follow: bool, tail: int = 0) -> AsyncGenerator[bytes, None]:
    """The log of a job's current attempt; with `follow` until the job's end, over the attempts to come.

    Args:
        tail: lines at the end of the current attempt's log to begin with; 0: all.

    Raises:
        ServerUnreachable, RequestRefused: see `Transport.stream`.
    """
    number = (await transport.call(transport.jobs.GetJob, job_pb2.GetJobRequest(name=name))).attempt
    while True:
        if number:
            pieces_of = attempt_logs(transport, f"{name}/attempts/{number}", follow=follow, tail=tail)
            async with aclosing(pieces_of) as pieces:
                async for piece in pieces:
                    yield piece
        if not follow:
            return
        seen, tail = number, 0
        async with aclosing(watch(transport, name, 0)) as updates:
            async for update in updates:
                number = update.job.attempt
                if number > seen:
                    break
        if number == seen:
            return


async def attempt_logs(
    transport: Transport, attempt: str, *, follow: bool, offset: int = 0, tail: int = 0
) -> AsyncGenerator[bytes, None]:
    """The log of one attempt, from an offset in bytes on, or its last `tail` lines; with `follow` until its end.

    Raises:
        ServerUnreachable, RequestRefused: see `Transport.stream`.
    """

    def start(timeout: float | None) -> Any:
        request = job_pb2.FollowLogsRequest(
            attempt=attempt, offset=offset, follow=follow, tail_lines=0 if offset else tail
        )
        return transport.jobs.FollowLogs(request, timeout=timeout)

    async with aclosing(transport.stream(start, lambda message: message.end)) as messages:
        async for message in messages:
            end = message.offset + len(message.data)
            if end > offset:
                yield message.data[max(0, offset - message.offset) :]
                offset = end


def check_success(job: JobRecord) -> None:
    """Raises JobFailed or JobCancelled for a job that has ended so."""
    if job.state is JobState.FAILED:
        raise JobFailed(job)
    if job.state is JobState.CANCELLED:
        raise JobCancelled(job)
