"""The client for asyncio."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from mvprune.client import endpoint
from mvprune.client.core import Core
from mvprune.client.endpoint import Endpoint
from mvprune.client.job import AsyncJob
from mvprune.client.transport import Transport
from mvprune.client.wire import AsyncWire

if TYPE_CHECKING:
    from mvprune.client.sweep import AsyncSweep


class AsyncClient(Core[AsyncJob, "AsyncSweep"]):
    """A client of a compression service for asyncio.

        async with AsyncClient() as client:
            job = await client.submit(model="bert-base-uncased", task="sst2", density=0.03)
            async for update in job.watch():
                print(update.job.state)
            await job.download("out/")

    It has the methods of `Client` as coroutines or async iterators, with the same arguments, models and errors. A call
    may be cancelled at any time: streams end, and a download stops and can be resumed. A request that has reached the
    server still takes effect; `submit` with the same `request_id` returns the same job.

    Args, raises: those of `Client`.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        project: str | None = None,
        timeout: float = 30.0,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        ca_cert: str | os.PathLike[str] | None = None,
        insecure: bool = False,
    ) -> None:
        found = endpoint.find(address, token=token, token_file=token_file, ca_cert=ca_cert, insecure=insecure)
        self._connect(found, project, timeout)

    def _connect(self, server: Endpoint, project: str | None, timeout: float) -> None:
        self.address = server.address
        transport = Transport(AsyncWire(server), server, timeout)
        super().__init__(transport, endpoint.project(project), functools.partial(AsyncJob, calls=self), _sweep_class)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()


def _sweep_class() -> type[AsyncSweep]:
    from mvprune.client.sweep import AsyncSweep  # few need it

    return AsyncSweep
