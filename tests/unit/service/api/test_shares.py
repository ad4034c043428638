"""A project has a few calls answered at a time; the calls of others do not wait behind its further ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from tests.unit.service.conftest import TestClock

from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.api.access import calls as calls_module
from mvprune_service.api.access.auth import Authenticator, digest
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.db import tokens
from mvprune_service.db.engine.database import Database
from mvprune_service.fair import OWNER
from mvprune_service.ids import TokenName

from ....waiting import until_true
from ..serving import serving


class Slow(job_pb2_grpc.JobServiceServicer):
    """Answers when it may."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.began: Counter[tuple[str, str]] = Counter()

    async def _answer(self, method: str) -> None:
        self.began[method, OWNER.get()] += 1
        await self.go.wait()

    async def GetJob(self, request: Any, context: Any) -> job_pb2.Job:
        await self._answer("GetJob")
        return job_pb2.Job()

    async def ListJobs(self, request: Any, context: Any) -> job_pb2.ListJobsResponse:
        await self._answer("ListJobs")
        return job_pb2.ListJobsResponse()

    async def CancelJob(self, request: Any, context: Any) -> job_pb2.Job:
        await self._answer("CancelJob")
        return job_pb2.Job()


class Caller:
    """The calls of one token."""

    def __init__(self, channel: grpc.aio.Channel, project: str, secret: str) -> None:
        self._stub: Any = job_pb2_grpc.JobServiceStub(channel)
        self._metadata = [("authorization", f"Bearer {secret}")]
        self._name = f"projects/{project}"

    def get(self) -> Any:
        return self._stub.GetJob(job_pb2.GetJobRequest(name=f"{self._name}/jobs/j"), metadata=self._metadata)

    def list(self) -> Any:
        return self._stub.ListJobs(job_pb2.ListJobsRequest(parent=self._name), metadata=self._metadata)

    def cancel(self, reason: str = "") -> Any:
        request = job_pb2.CancelJobRequest(name=f"{self._name}/jobs/j", reason=reason)
        return self._stub.CancelJob(request, metadata=self._metadata)


async def secret_of(db: Database, project: str, number: int) -> str:
    """Of a new token."""
    secret = f"mvp_{project}{number}_".ljust(40, "x")
    await db.write(
        tokens.create,
        TokenName(project, f"{project}{number}"),
        secret_sha256=digest(secret),
        scope="SUBMIT",
        display_name="",
        creator="",
        expire_us=None,
    )
    return secret


@pytest.fixture
async def slow() -> Slow:
    return Slow()


@pytest.fixture
async def callers(db: Database, clock: TestClock, slow: Slow) -> AsyncIterator[dict[str, Caller]]:
    """Two tokens of one project, and one of another."""
    calls = Calls(Authenticator(db, clock))
    job_pb2_grpc.add_JobServiceServicer_to_server(slow, calls)
    async with serving(calls) as channel:
        yield {
            f"{project}{number}": Caller(channel, project, await secret_of(db, project, number))
            for project, number in (("storm", 1), ("storm", 2), ("calm", 1))
        }


async def began(slow: Slow, expected: dict[tuple[str, str], int]) -> None:
    """As many calls of each kind have begun, and no more begin."""
    await until_true(lambda: slow.began == expected, "they began")
    await asyncio.sleep(0.05)
    assert slow.began == expected


async def test_the_tokens_of_a_project_share_its_places(slow: Slow, callers: dict[str, Caller]) -> None:
    calls = [callers[f"storm{1 + number % 2}"].get() for number in range(12)]
    calls += [callers["storm1"].cancel() for _ in range(9)]
    reads, changes = ("GetJob", "storm"), ("CancelJob", "storm")
    await began(slow, {reads: 8, changes: 8})
    calls += [callers["calm1"].get(), callers["calm1"].list()]
    await began(slow, {reads: 8, changes: 8, ("GetJob", "calm"): 1, ("ListJobs", "calm"): 1})
    slow.go.set()
    await asyncio.gather(*calls)
    assert (slow.began[reads], slow.began[changes]) == (12, 9)


async def test_a_project_lists_once_at_a_time(slow: Slow, callers: dict[str, Caller]) -> None:
    calls = [callers["storm1"].list() for _ in range(3)]
    await began(slow, {("ListJobs", "storm"): 1})
    calls += [callers["storm2"].get(), callers["calm1"].list()]
    await began(slow, {("ListJobs", "storm"): 1, ("GetJob", "storm"): 1, ("ListJobs", "calm"): 1})
    slow.go.set()
    await asyncio.gather(*calls)
    assert slow.began["ListJobs", "storm"] == 3


async def test_without_tokens_there_is_no_limit(slow: Slow) -> None:
    calls = Calls()
    job_pb2_grpc.add_JobServiceServicer_to_server(slow, calls)
    async with serving(calls) as channel:
        calls = [Caller(channel, "p", "").list() for _ in range(20)]
        await began(slow, {("ListJobs", "p"): 20})
        slow.go.set()
        await asyncio.gather(*calls)


async def test_a_large_request_counts_as_many_calls(db: Database, clock: TestClock, slow: Slow) -> None:
    calls = Calls(Authenticator(db, clock), RateLimiter(1, 10, clock))
    job_pb2_grpc.add_JobServiceServicer_to_server(slow, calls)
    slow.go.set()
    async with serving(calls) as channel:
        caller = Caller(channel, "p", await secret_of(db, "p", 1))
        await caller.cancel("x" * 900)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.cancel("x" * 900 * 7)  # 1 call, and 6 KiB
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await caller.cancel("x" * 900 * 3)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_call_beyond_the_rate_is_not_refused_at_once(
    db: Database, clock: TestClock, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a caller that calls again at once keeps the server busy with refusals."""
    waited: list[float] = []

    async def noted(seconds: float) -> None:
        waited.append(seconds)

    calls = Calls(Authenticator(db, clock), RateLimiter(1, 1, clock))
    job_pb2_grpc.add_JobServiceServicer_to_server(slow, calls)
    slow.go.set()
    async with serving(calls) as channel:
        caller = Caller(channel, "p", await secret_of(db, "p", 1))
        await caller.get()
        with monkeypatch.context() as patch:
            patch.setattr(calls_module.asyncio, "sleep", noted)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await caller.get()
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    least, most = calls_module._REFUSED_SECONDS
    assert [least <= seconds <= most for seconds in waited] == [True]
