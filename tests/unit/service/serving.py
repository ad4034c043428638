"""RPCs on a port of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.handlers import Handlers


@asynccontextmanager
async def serving(calls: Calls) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a server with these."""
    server = grpc.aio.server(handlers=(Handlers(calls),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)
