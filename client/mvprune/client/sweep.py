"""Sweeps that know their client. `Sweep` is made of `AsyncSweep`: see scripts/blocking_client.py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mvprune.client.sweep_frame import frame
from mvprune.client.sweep_models import SweepEvent, SweepPoint, SweepRecord

if TYPE_CHECKING:
    from typing import Unpack

    from mvprune.client.sweeps import Report, SweepCalls
    from mvprune.client.upload_models import UploadProgress
    from mvprune.spec.sweep_choices import PolicyOptions


@dataclass(frozen=True)
class AsyncSweep(SweepRecord):
    """A sweep of an `AsyncClient`.

    Its methods call the server. The object itself does not change. With `if_unchanged`, a method raises Conflict if the
    sweep has changed since this object was returned.
    """

    calls: InitVar[SweepCalls[AsyncSweep]]

    def __post_init__(self, calls: SweepCalls[AsyncSweep]) -> None:
        # No field: equality, repr and asdict are about the data only.
        object.__setattr__(self, "_calls", calls)

    async def refresh(self) -> AsyncSweep:
        """Returns the current state of the sweep."""
        return await self._server.get(self.name)

    async def wait(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 (the name that it has in Sweep)
        on_progress: Callable[[AsyncSweep], None] | None = None,
    ) -> AsyncSweep:
        """Waits until the sweep has SUCCEEDED and returns it.

        Args:
            timeout: seconds to wait, a year at most; None: as long as it takes.
            on_progress: called with the sweep immediately and at each change.

        Raises:
            InvalidArgument: the timeout is out of range.
            SweepFailed, SweepCancelled: the sweep ended without success.
            SweepWaitTimeout: the timeout has passed; the sweep continues.
        """
        return await self._server.wait(self.name, timeout, on_progress)

    def watch(self) -> AsyncGenerator[AsyncSweep, None]:
        """Iterates over the sweep's changes until it has ended, at most one a second."""
        return self._server.watch(self.name)

    def points(self, *, optimal_only: bool = False) -> AsyncGenerator[SweepPoint, None]:
        """Iterates over the points by number; with `optimal_only` over those of the front."""
        return self._server.points(self.name, optimal_only=optimal_only)

    async def front(self) -> list[SweepPoint]:
        """Returns the points with a result that no other point is better than in all objectives."""
        return [point async for point in self.points(optimal_only=True)]

    async def recommended(self) -> SweepPoint | None:
        """Returns the recommended point; None where no point passes the gates, or none has a result yet."""
        return await self._server.recommended(self.name)

    async def frame(self) -> Any:
        """Returns the points as a pandas DataFrame, one a row.

        The columns are number, state, optimal, the parameters of the cells, method, target_density, seed, model, task,
        reached_density, bytes, runtime, gpu_hours and the metrics. A value that a point does not have is missing (NaN).

        Raises:
            ImportError: pandas is not installed.
        """
        return frame([point async for point in self.points()])

    def events(self) -> AsyncGenerator[SweepEvent, None]:
        """Iterates over the sweep's events, oldest first."""
        return self._server.events(self.name)

    async def cancel(self, reason: str = "", *, if_unchanged: bool = False) -> AsyncSweep:
        """Cancels the sweep: points without a job get none, and live jobs are cancelled."""
        return await self._server.cancel(self.name, reason, self._etag(if_unchanged))

    async def pause(self, *, if_unchanged: bool = False) -> AsyncSweep:
        """Pauses the sweep: no job is created, and live jobs continue."""
        return await self._server.pause(self.name, self._etag(if_unchanged))

    async def resume(self, *, if_unchanged: bool = False) -> AsyncSweep:
        """Continues a paused sweep."""
        return await self._server.resume(self.name, self._etag(if_unchanged))

    async def retry(self, *, if_unchanged: bool = False) -> AsyncSweep:
        """Runs the points again that failed, were cancelled, skipped or deleted. Results are kept."""
        return await self._server.retry(self.name, self._etag(if_unchanged))

    async def extend(
        self,
        axes: Mapping[str, Sequence[Any]] | None = None,
        points: Sequence[Mapping[str, Any]] | None = None,
        *,
        if_unchanged: bool = False,
        validate_only: bool = False,
        on_upload: Callable[[UploadProgress], None] | None = None,
    ) -> AsyncSweep:
        """Appends the combinations of axes, and points. Points that the sweep has already are not added again.

        Args:
            axes: as of `AsyncClient.sweep`, values only.
            points: as of `AsyncClient.sweep`.
            validate_only: check the points; return the sweep as it would be, with an estimate; store nothing.
            on_upload: as of `AsyncClient.submit`.
        """
        etag = self._etag(if_unchanged)
        return await self._server.extend(self.name, axes, points, etag, on_upload, validate_only=validate_only)

    async def update_policy(self, *, if_unchanged: bool = False, **policy: Unpack[PolicyOptions]) -> AsyncSweep:
        """Changes how the sweep is run. What is not given stays as it is; None is the default: see `PolicyOptions`."""
        return await self._server.update_policy(self.name, self._etag(if_unchanged), **policy)

    async def delete(self, *, if_unchanged: bool = False) -> None:
        """Deletes a sweep that has ended, with its jobs; artifacts are kept.

        Raises:
            FailedPrecondition: the sweep has not ended.
        """
        await self._server.delete(self.name, self._etag(if_unchanged))

    async def download_recommended(self, directory: str | PathLike[str], on_progress: Report | None = None) -> Path:
        """Downloads the artifact of the recommended point: see `AsyncClient.download`.

        Raises:
            NoPointPasses: there is none.
        """
        return await self._server.download_recommended(self.name, directory, on_progress)

    async def download_front(
        self, directory: str | PathLike[str], on_progress: Report | None = None
    ) -> dict[int, Path]:
        """Downloads the artifacts of the front, each into a folder of its own in `directory`, which is named by the
        number and the cell of the point: see `AsyncClient.download`.

        Returns:
            Number to folder.
        """
        return await self._server.download_front(self.name, directory, on_progress)

    def _etag(self, if_unchanged: bool) -> str:
        return self.etag if if_unchanged else ""

    @property
    def _server(self) -> SweepCalls[AsyncSweep]:
        calls: SweepCalls[AsyncSweep] = self.__dict__["_calls"]
        return calls
