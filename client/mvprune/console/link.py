"""The way of one user to the server: calls that show this user's credential."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from mvprune.client.admin import AsyncAdmin, Caller
from mvprune.client.convert import job_fields
from mvprune.client.core import Core
from mvprune.client.endpoint import Endpoint
from mvprune.client.models import JobRecord
from mvprune.client.sink import BLOCK
from mvprune.client.sweep import AsyncSweep
from mvprune.client.sweep_convert import sweep_fields
from mvprune.client.sweep_models import SweepRecord
from mvprune.client.transport import Transport
from mvprune.client.upload_models import Upload
from mvprune.client.uploads import announced, upload
from mvprune.client.wire import AsyncWire
from mvprune.sources.uploads import File, Kind
from mvprune.v1 import job_pb2, sweep_pb2, upload_pb2

_SECONDS = 20.0  # that one call may take
_PUT_SECONDS = 120.0  # a chunk of an upload
Calls = Core[JobRecord, AsyncSweep]


class SweepPage(NamedTuple):
    """As a JobPage, of sweeps."""

    sweeps: list[SweepRecord]
    next_page: str


class JobPage(NamedTuple):
    """Some of the jobs of a list; `next_page` leads to those after them, "" at the end."""

    jobs: list[JobRecord]
    next_page: str


class Link:
    """A connection with a credential.

    Args:
        endpoint: the server, with the user's credential.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.transport = Transport(AsyncWire(endpoint), endpoint, _SECONDS)

    def calls(self, project: str) -> Calls:
        """The calls about a project."""
        return Core(self.transport, project, JobRecord, lambda: AsyncSweep)

    async def caller(self) -> Caller:
        """Whose credential it is. Raises NotAuthorised if the server does not know it."""
        return await AsyncAdmin(self.transport).caller()

    async def jobs(self, project: str, filter: str, order_by: str, size: int, page: str) -> JobPage:
        """A page of a list of jobs: see `Client.list`.

        Args:
            page: the `next_page` of the page before; "" for the first one.
        """
        request = job_pb2.ListJobsRequest(
            parent=f"projects/{project}", filter=filter, order_by=order_by, page_size=size, page_token=page
        )
        answer: Any = await self.transport.call(self.transport.jobs.ListJobs, request)
        return JobPage([JobRecord(**job_fields(one)) for one in answer.jobs], answer.next_page_token)

    async def end_of_log(self, attempt: str, lines: int) -> tuple[bytes, int]:
        """The last lines of a log, and the bytes that it has.

        Args:
            attempt: the name of an attempt.
        """

        def start(timeout: float | None) -> Any:
            request = job_pb2.FollowLogsRequest(attempt=attempt, tail_lines=lines)
            return self.transport.jobs.FollowLogs(request, timeout=timeout)

        pieces, end = [], 0
        async with aclosing(self.transport.stream(start, lambda message: message.end)) as messages:
            async for message in messages:
                pieces.append(message.data)
                end = message.offset + len(message.data)
        return b"".join(pieces), end

    async def create(self, request: job_pb2.CreateJobRequest) -> JobRecord:
        """Submits a job, or checks it. Raises InvalidArgument."""
        answer: Any = await self.transport.call(self.transport.jobs.CreateJob, request)
        return JobRecord(**job_fields(answer))

    async def create_upload(
        self, project: str, kind: Kind, name: str, files: Sequence[File]
    ) -> tuple[Upload, list[str]]:
        """Announces an upload, and returns it with the SHA-256 of the chunks that are missing. Raises InvalidArgument,
        LimitExceeded."""
        answer: Any = await self.transport.call(
            self.transport.uploads.CreateUpload, announced(project, kind, name, files)
        )
        return upload(answer), list(answer.missing)

    async def put_chunk(self, name: str, chunk: str, content: bytes) -> None:
        """Stores a chunk of an upload. Raises InvalidArgument, NotFound."""

        def messages() -> Iterator[upload_pb2.PutChunkRequest]:
            names = {"name": name, "chunk": chunk}
            for at in range(0, len(content), BLOCK):
                yield upload_pb2.PutChunkRequest(**names, data=content[at : at + BLOCK])
                names = {}

        def put(_: None, timeout: float) -> Any:
            return self.transport.uploads.PutChunk(messages(), timeout=max(timeout, _PUT_SECONDS))

        await self.transport.call(put, None)

    async def sweeps(self, project: str, size: int, page: str) -> SweepPage:
        """A page of the sweeps of a project, newest first."""
        request = sweep_pb2.ListSweepsRequest(parent=f"projects/{project}", page_size=size, page_token=page)
        answer: Any = await self.transport.call(self.transport.sweeps.ListSweeps, request)
        return SweepPage([SweepRecord(**sweep_fields(one)) for one in answer.sweeps], answer.next_page_token)

    async def close(self) -> None:
        """Closes the connection."""
        await self.transport.wire.close()
