"""Connections that the server closes by their age lose no call, and lead to servers that were added."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import grpc
import pytest

from mvprune.client.endpoint import Endpoint
from mvprune.client.wire import AsyncWire, BlockingWire
from mvprune.v1 import worker_pb2, worker_pb2_grpc
from mvprune_service.api.access import ports
from mvprune_workers.channel import Unreachable, WorkerClient

from ..neighbours import free_ports
from ..waiting import PATIENCE

AGE_MS = 20
CALLS = 400


class Workers(worker_pb2_grpc.WorkerServiceServicer):
    """Counts calls and connections."""

    def __init__(self) -> None:
        self.calls = 0
        self.peers: Counter[str] = Counter()

    async def ReportMetrics(
        self, request: worker_pb2.ReportMetricsRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.ReportMetricsResponse:
        self.calls += 1
        self.peers[context.peer()] += 1
        await asyncio.sleep(0.002)  # connections are to end while calls are under way
        return worker_pb2.ReportMetricsResponse()


@asynccontextmanager
async def started(address: str = "127.0.0.1:0") -> AsyncIterator[tuple[Workers, grpc.aio.Server, str]]:
    """A server with the options of a real port."""
    servicer = Workers()
    server, bound = ports.listen(address, "--address", None, allow_remote=False, max_connections=100)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(servicer, server)
    await server.start()
    try:
        yield servicer, server, bound
    finally:
        await server.stop(None)


@pytest.fixture
def young(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections last for milliseconds."""
    options = dict(ports._OPTIONS)
    assert options["grpc.max_connection_age_ms"] >= 60_000
    assert "grpc.max_connection_age_grace_ms" not in options, "calls in progress are not cut"
    monkeypatch.setattr(ports, "_OPTIONS", tuple((options | {"grpc.max_connection_age_ms": AGE_MS}).items()))


@pytest.fixture
async def server(young: None) -> AsyncIterator[tuple[Workers, str]]:
    async with started() as (servicer, _, address):
        yield servicer, address


def worker(target: str) -> WorkerClient:
    return WorkerClient(target, None, "secret", "projects/p/jobs/j/attempts/1", 1, timeout=PATIENCE)


async def test_no_call_of_a_worker_is_lost(server: tuple[Workers, str]) -> None:
    servicer, address = server

    def call() -> None:
        with worker(address) as client:
            for _ in range(CALLS):
                client.report_metrics([])

    await asyncio.to_thread(call)
    assert servicer.calls == CALLS
    assert len(servicer.peers) > 5, "connections were closed meanwhile"


async def test_no_call_of_a_client_is_lost(server: tuple[Workers, str]) -> None:
    """Nor is one repeated: this is below what the client itself repeats."""
    servicer, address = server
    endpoint = Endpoint(address)

    async def calls(wire: AsyncWire) -> None:
        stub = worker_pb2_grpc.WorkerServiceStub(wire.channel)
        for _ in range(CALLS):
            await stub.ReportMetrics(worker_pb2.ReportMetricsRequest(), timeout=PATIENCE)

    def blocking_calls(wire: BlockingWire) -> None:
        stub = worker_pb2_grpc.WorkerServiceStub(wire.channel)
        for _ in range(CALLS):
            stub.ReportMetrics(worker_pb2.ReportMetricsRequest(), timeout=PATIENCE)

    one, two = AsyncWire(endpoint), BlockingWire(endpoint)
    await asyncio.gather(calls(one), asyncio.to_thread(blocking_calls, two))
    await one.close()
    await two.close()
    assert servicer.calls == 2 * CALLS
    assert len(servicer.peers) > 5, "connections were closed meanwhile"


async def test_workers_use_all_servers_and_those_that_are_added(young: None) -> None:
    """As in a rolling update: one server ends, another one starts. The target is what a name resolves to."""
    two = f"127.0.0.1:{free_ports(1)[0]}"
    async with started() as (old, first, one):
        with worker(f"ipv4:{one},{two}") as client:
            deadline = time.monotonic() + PATIENCE

            def call(until: Callable[[], bool]) -> None:
                while not until() and time.monotonic() < deadline:
                    with suppress(Unreachable):  # of a server that ends; workers try again
                        client.report_metrics([])

            await asyncio.to_thread(call, lambda: old.calls >= 20)
            async with started(two) as (added, _, _):
                await asyncio.to_thread(call, lambda: added.calls >= 20)
                assert added.calls >= 20
                stopping = asyncio.create_task(first.stop(5))
                before = added.calls
                await asyncio.to_thread(call, lambda: added.calls >= before + 20)
                await stopping
                assert added.calls >= before + 20
