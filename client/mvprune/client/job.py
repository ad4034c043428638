"""Jobs that know their client. `Job` is made of `AsyncJob`: see scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import InitVar, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.client.models import JobChange, JobRecord, JobUpdate

if TYPE_CHECKING:
    from typing import Unpack

    from mvprune.client.core import Core


@dataclass(frozen=True)
class AsyncJob(JobRecord):
    """A job of an `AsyncClient`.

    Its methods call the server. The object itself does not change.
    """

    calls: InitVar[Core[AsyncJob, Any]]

    def __post_init__(self, calls: Core[AsyncJob, Any]) -> None:
        # No field: equality, repr and asdict are about the data only.
        object.__setattr__(self, "_calls", calls)

    async def refresh(self) -> AsyncJob:
        """Returns the current state of the job."""
        return await self._server.get(self.name)

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 (the name that it has in Job)
        on_progress: Callable[[AsyncJob], None] | None = None,
    ) -> AsyncJob:
        """Waits until the job ends: see `AsyncClient.wait`."""
        return await self._server.wait(self.name, timeout, on_progress)

    def watch(self) -> AsyncGenerator[JobUpdate[AsyncJob], None]:
        """Iterates over changes until the end: see `AsyncClient.watch`."""
        return self._server.watch(self.name)

    def logs(self, *, follow: bool = False) -> AsyncGenerator[bytes, None]:
        """Iterates over the log: see `AsyncClient.logs`."""
        return self._server.logs(self.name, follow=follow)

    async def download(
        self, directory: str | PathLike[str], on_progress: Callable[[int, int], None] | None = None
    ) -> Path:
        """Downloads the artifact: see `AsyncClient.download`."""
        return await self._server.download(self.name, directory, on_progress)

    async def update(self, **change: Unpack[JobChange]) -> AsyncJob:
        """Changes what people call the job and write about it: see `AsyncClient.update`."""
        return await self._server.update(self.name, **change)

    async def cancel(self, reason: str = "") -> AsyncJob:
        """Cancels the job: see `AsyncClient.cancel`."""
        return await self._server.cancel(self.name, reason)

    async def retry(self, *, from_scratch: bool = False) -> AsyncJob:
        """Puts the job back into the queue: see `AsyncClient.retry`."""
        return await self._server.retry(self.name, from_scratch=from_scratch)

    async def delete(self) -> None:
        """Deletes the job: see `AsyncClient.delete`."""
        await self._server.delete(self.name)

    @property
    def _server(self) -> Core[AsyncJob, Any]:
        calls: Core[AsyncJob, Any] = self.__dict__["_calls"]
        return calls
