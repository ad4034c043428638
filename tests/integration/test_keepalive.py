"""A stream whose client has gone without a word is ended; one whose client is silent but there is not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mvprune_service.api.access import ports

from ..chaos.proxy import Proxy
from ..neighbours import free_ports
from ..waiting import PATIENCE


class Watched(health_pb2_grpc.HealthServicer):
    """Answers once, then waits until its call ends: `ended` has the services that such calls asked for."""

    def __init__(self) -> None:
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> None:
        try:
            await context.write(health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING))
            await asyncio.Event().wait()
        finally:
            self.ended.put_nowait(request.service)


@pytest.fixture
def ports_of_proxy() -> Iterator[tuple[Proxy, str]]:
    """A proxy, and the address that it forwards to. Its loop cannot start within a test's."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with Proxy(address) as proxy:
        yield proxy, address


async def test_a_stream_ends_once_nothing_answers_any_more(
    ports_of_proxy: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, address = ports_of_proxy
    options = dict(ports._OPTIONS)
    names = ("grpc.keepalive_time_ms", "grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms")
    assert all(options[name] <= 30_000 for name in names)
    # A client that is there answers within 5 s, however busy the machine is.
    short = dict.fromkeys(names, 5000) | {"grpc.keepalive_time_ms": 500}
    monkeypatch.setattr(ports, "_OPTIONS", tuple((options | short).items()))
    server, _ = ports.listen(address, "--address", None, allow_remote=False, max_connections=8)
    servicer = Watched()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(address) as there, grpc.aio.insecure_channel(proxy.address) as gone:
            streams = [
                health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=name))
                for channel, name in ((there, "there"), (gone, "gone"))
            ]
            for stream in streams:
                assert (await stream.read()).status
            proxy.silent = True
            assert await asyncio.wait_for(servicer.ended.get(), PATIENCE) == "gone"
            assert servicer.ended.empty(), "who is silent as long, but answers pings, stays"
    finally:
        await server.stop(None)
