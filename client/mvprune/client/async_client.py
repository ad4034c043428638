"""The client for asyncio."""

from __future__ import annotations

import functools
import os

from mvprune.client import endpoint
from mvprune.client.core import Core
from mvprune.client.job import AsyncJob
from mvprune.client.transport import Transport
from mvprune.client.wire import AsyncWire


class AsyncClient(Core[AsyncJob]):
    """Talks to a compression service from an event loop: `Client`, with `await`.

        async with AsyncClient() as client:
            job = await client.submit(model="bert-base-uncased", task="sst2", density=0.03)
            async for update in job.watch():
                print(update.job.state)
            await job.download("out/")

    It has the methods of `Client`, with the same arguments, models and errors; those that give a series are async
    iterators. A call may be cancelled at any time: streams end, a download stops and can go on later. What has reached
    the server stays done; a `submit` that is repeated with the same `request_id` finds the same job.

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
        self.address = found.address
        transport = Transport(AsyncWire(found), found, timeout)
        super().__init__(transport, endpoint.project(project), functools.partial(AsyncJob, client=self))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
