"""Open streams of an address, where callers need no token. Those of a token are in test_auth_tokens.py."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.waiting import PATIENCE

from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.api.access import ports
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.handlers import Handlers
from mvprune_service.api.access.streams import Streams


async def test_without_tokens_an_address_has_only_so_many_streams() -> None:
    class Silent(job_pb2_grpc.JobServiceServicer):
        async def WatchJob(self, request: job_pb2.WatchJobRequest, context: Any) -> Any:
            yield job_pb2.WatchJobResponse(sequence=1)
            await asyncio.sleep(PATIENCE)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = address.rpartition(":")
        ends = await asyncio.open_connection(host, int(port), local_addr=("127.0.0.2", 0))
        await asyncio.gather(pump(reader, ends[1]), pump(ends[0], writer))

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    async def watch(channel: grpc.aio.Channel) -> Any:
        stub: Any = job_pb2_grpc.JobServiceStub(channel)
        call = stub.WatchJob(job_pb2.WatchJobRequest(name="projects/p/jobs/a"), timeout=PATIENCE)
        await call.read()
        return call

    calls = Calls(streams=Streams(2))
    job_pb2_grpc.add_JobServiceServicer_to_server(Silent(), calls)
    server, address = ports.listen("127.0.0.1:0", "--address", None, allow_remote=False, max_connections=8)
    server.add_generic_rpc_handlers((Handlers(calls),))
    await server.start()
    other = await asyncio.start_server(relay, "127.0.0.1", 0)
    through = "{}:{}".format(*other.sockets[0].getsockname())
    try:
        async with grpc.aio.insecure_channel(address) as one, grpc.aio.insecure_channel(through) as two:
            held = [await watch(one) for _ in range(2)]
            with pytest.raises(grpc.aio.AioRpcError, match="open streams of a caller must be at most 2"):
                await watch(one)
            held.append(await watch(two))
    finally:
        await server.stop(None)
        other.close()
