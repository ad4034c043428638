"""The path of a call without gRPC: what another transport tells of it is enough to decide it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message
from tests.unit.service.conftest import TestClock

from mvprune.v1 import catalog_pb2, job_pb2, job_pb2_grpc, upload_pb2, upload_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access import calls as calls_module
from mvprune_service.api.access.auth import Authenticator, digest, new_secret
from mvprune_service.api.access.calls import END, UNREADABLE, Calls
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.access.streams import Streams
from mvprune_service.db import tokens
from mvprune_service.db.engine.database import Database

_JOBS, _UPLOADS = "/mvprune.v1.JobService/", "/mvprune.v1.UploadService/"
_S = grpc.StatusCode


class Visit(NamedTuple):
    """What a transport other than gRPC tells of a call."""

    secret: str = ""

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", f"Bearer {self.secret}")] if self.secret else []


class Jobs(job_pb2_grpc.JobServiceServicer):
    """Answers with who asks."""

    async def GetJob(self, request: job_pb2.GetJobRequest, context: Any) -> job_pb2.Job:
        return job_pb2.Job(name=request.name, creator=current_principal().id)

    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: Any) -> job_pb2.Job:
        raise RuntimeError("not to be told")

    async def WatchJob(self, request: job_pb2.WatchJobRequest, context: Any) -> AsyncIterator[job_pb2.WatchJobResponse]:
        for sequence in (1, 2):
            yield job_pb2.WatchJobResponse(sequence=sequence)


class Uploads(upload_pb2_grpc.UploadServiceServicer):
    """Counts bytes."""

    async def PutChunk(self, requests: AsyncIterator[Any], context: Any) -> upload_pb2.PutChunkResponse:
        self.received = [len(request.data) async for request in requests]
        return upload_pb2.PutChunkResponse()


class Port:
    """A port that no gRPC server has, and what it tells of the calls that have ended."""

    def __init__(self, authenticator: Authenticator | None, limiter: RateLimiter | None = None) -> None:
        self.ended: list[tuple[str, grpc.StatusCode, bool]] = []
        self.calls = Calls(authenticator, limiter, Streams(1), self._note)
        self.uploads = Uploads()
        job_pb2_grpc.add_JobServiceServicer_to_server(Jobs(), self.calls)
        upload_pb2_grpc.add_UploadServiceServicer_to_server(self.uploads, self.calls)

    def _note(self, method: str, code: grpc.StatusCode, seconds: float | None) -> None:
        self.ended.append((method.rpartition("/")[2], code, seconds is not None))

    async def call(self, name: str, origin: Visit, *requests: Any) -> Any:
        method = self.calls.method(name)
        assert method is not None
        return await self.calls.call(method, origin, receiving(*requests))

    async def stream(self, name: str, origin: Visit, request: Message) -> list[Any]:
        method = self.calls.method(name)
        assert method is not None
        return [one async for one in self.calls.stream(method, origin, receiving(request))]


def receiving(*requests: Any) -> Any:
    left = [*requests, END]

    async def receive() -> Any:
        return left.pop(0)

    return receive


async def refusal(call: Any) -> tuple[grpc.StatusCode, str, str]:
    with pytest.raises(ApiError) as caught:
        await call
    return caught.value.code, caught.value.reason, caught.value.message


@pytest.fixture
async def authenticator(db: Database, clock: TestClock) -> AsyncIterator[Authenticator]:
    one = Authenticator(db, clock)
    yield one
    await one.close()


@pytest.fixture
async def reader(db: Database) -> Visit:
    """A caller with a token of project p, which may read."""
    name = ids.TokenName("p", ids.new_token_id())
    secret = new_secret(name.token)
    await db.write(
        tokens.create,
        name,
        secret_sha256=digest(secret),
        scope="READ",
        display_name="",
        creator="test",
        expire_us=None,
    )
    return Visit(secret)


GET = job_pb2.GetJobRequest(name="projects/p/jobs/j")
WATCH = job_pb2.WatchJobRequest(name="projects/p/jobs/j")


async def test_who_may(authenticator: Authenticator, reader: Visit) -> None:
    port = Port(authenticator)
    answer = await port.call(f"{_JOBS}GetJob", reader, GET)
    assert (answer.name, answer.creator) == (GET.name, reader.secret.split("_")[1])
    assert (await refusal(port.call(f"{_JOBS}GetJob", Visit(), GET)))[:2] == (_S.UNAUTHENTICATED, "NO_TOKEN")
    elsewhere = job_pb2.GetJobRequest(name="projects/q/jobs/j")
    assert (await refusal(port.call(f"{_JOBS}GetJob", reader, elsewhere)))[:2] == (
        _S.PERMISSION_DENIED,
        "OTHER_PROJECT",
    )
    cancel = job_pb2.CancelJobRequest(name=GET.name)
    assert (await refusal(port.call(f"{_JOBS}CancelJob", reader, cancel)))[:2] == (_S.PERMISSION_DENIED, "SCOPE_NEEDED")
    assert port.calls.method(f"{_JOBS}Nothing") is None
    assert port.ended == [
        ("GetJob", _S.OK, True),
        ("GetJob", _S.UNAUTHENTICATED, True),
        ("GetJob", _S.PERMISSION_DENIED, True),
        ("CancelJob", _S.PERMISSION_DENIED, True),
    ]


async def test_what_a_request_may_be(authenticator: Authenticator, reader: Visit) -> None:
    port = Port(authenticator)
    long = job_pb2.GetJobRequest(name="projects/p/jobs/" + "j" * 2000)
    code, _, message = await refusal(port.call(f"{_JOBS}GetJob", reader, long))
    assert (code, message) == (_S.INVALID_ARGUMENT, "name: must be at most 1000 characters, got 2016")
    for nothing in (UNREADABLE, END):
        code, _, message = await refusal(port.call(f"{_JOBS}GetJob", reader, nothing))
        assert (code, message.partition(":")[0]) == (_S.INVALID_ARGUMENT, "request")


async def test_how_often_and_how_long(
    authenticator: Authenticator, reader: Visit, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls_module, "_REFUSED_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(calls_module, "_REQUEST_SECONDS", 0.01)
    port = Port(authenticator, RateLimiter(1, 2, clock))
    await port.call(f"{_JOBS}GetJob", reader, GET)
    method = port.calls.method(f"{_JOBS}GetJob")
    assert method is not None
    never = asyncio.Event()
    assert (await refusal(port.calls.call(method, reader, never.wait)))[:2] == (_S.DEADLINE_EXCEEDED, "REQUEST_TIMEOUT")
    assert (await refusal(port.call(f"{_JOBS}GetJob", reader, GET)))[:2] == (_S.RESOURCE_EXHAUSTED, "RATE_LIMITED")


async def test_an_error_of_the_server_is_not_told() -> None:
    port = Port(None)
    cancel = job_pb2.CancelJobRequest(name=GET.name)
    code, reason, message = await refusal(port.call(f"{_JOBS}CancelJob", Visit(), cancel))
    assert (code, reason) == (_S.INTERNAL, "INTERNAL")
    assert "not to be told" not in message


async def test_a_stream(authenticator: Authenticator, reader: Visit) -> None:
    port = Port(authenticator)
    assert [one.sequence for one in await port.stream(f"{_JOBS}WatchJob", reader, WATCH)] == [1, 2]
    assert (await refusal(port.stream(f"{_JOBS}WatchJob", Visit(), WATCH)))[0] is _S.UNAUTHENTICATED
    method = port.calls.method(f"{_JOBS}WatchJob")
    assert method is not None
    held = port.calls.stream(method, reader, receiving(WATCH))
    await anext(held)
    assert (await refusal(port.stream(f"{_JOBS}WatchJob", reader, WATCH)))[1] == "TOO_MANY_STREAMS"
    await held.aclose()
    assert port.ended[-1] == ("WatchJob", _S.CANCELLED, False)
    assert len(await port.stream(f"{_JOBS}WatchJob", reader, WATCH)) == 2


async def test_requests_in_several_pieces() -> None:
    port = Port(None)
    pieces = [upload_pb2.PutChunkRequest(name="projects/p/uploads/u", data=b"x" * size) for size in (3, 5)]
    await port.call(f"{_UPLOADS}PutChunk", Visit(), *pieces)
    assert port.uploads.received == [3, 5]
    other = catalog_pb2.ListModelsRequest(page_token="x" * 20_000)
    code, _, message = await refusal(port.call(f"{_UPLOADS}PutChunk", Visit(), pieces[0], other))
    assert (code, message.partition(":")[0]) == (_S.INVALID_ARGUMENT, "page_token")
