"""The calls about sweeps, written once for both: see `mvprune.client.wire`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from mvprune.client import sweep_convert
from mvprune.client.core import AnySweep
from mvprune.client.exceptions import NoPointPasses, SweepCancelled, SweepFailed, SweepWaitTimeout
from mvprune.client.inputs import visit_sweep
from mvprune.client.names import full_name
from mvprune.client.pages import listed
from mvprune.client.sweep_models import SweepEvent, SweepPoint, SweepRecord, SweepState
from mvprune.client.transport import DeadlinePassed, Transport, check_timeout
from mvprune.client.upload_models import UploadProgress
from mvprune.spec import sweep_message
from mvprune.v1 import sweep_pb2

if TYPE_CHECKING:
    from typing import Unpack

    from mvprune.client.uploads import UploadCalls
    from mvprune.spec.sweep_choices import PolicyOptions

_UNSAFE = re.compile(r"[^A-Za-z0-9.=-]+")
_LONGEST = 100  # characters of a folder's name
Report = Callable[[int, int], None]
"""Called with the downloaded bytes and the total bytes."""
OnUpload = Callable[[UploadProgress], None] | None
Download = Callable[[str, str | os.PathLike[str], Report | None], Coroutine[Any, Any, Path]]


class SweepCalls(Generic[AnySweep]):
    """The calls about sweeps.

    Args:
        transport: the way to the server.
        project: of sweeps that are given only by their id.
        bind: makes a sweep of its fields and of these calls.
        download: downloads an artifact that is given by its name.
        uploads: sends local folders and files.
    """

    def __init__(
        self,
        transport: Transport,
        project: str,
        bind: Callable[..., AnySweep],
        download: Download,
        uploads: UploadCalls,
    ) -> None:
        self._transport = transport
        self._project = project
        self._bind = bind
        self._download = download
        self._uploads = uploads

    async def create(self, options: Mapping[str, Any], on_upload: OnUpload) -> AnySweep:
        """See `Client.sweep`; `options` have the model and the density too."""

        def build(given: Mapping[str, Any]) -> sweep_pb2.CreateSweepRequest:
            rest: Any = {name: value for name, value in given.items() if name not in ("model", "density")}
            parent = f"projects/{self._project}"
            return sweep_message.create_sweep_request(parent, given["model"], given["density"], rest)

        method = self._transport.sweeps.CreateSweep
        return self._bound(await self._uploads.call(options, visit_sweep, build, method, on_upload))

    async def get(self, sweep: str | SweepRecord) -> AnySweep:
        """See `Client.get_sweep`."""
        name = sweep.name if isinstance(sweep, SweepRecord) else full_name(sweep, self._project, "sweep")
        request = sweep_pb2.GetSweepRequest(name=name)
        return await self._sweep(self._transport.sweeps.GetSweep, request)

    async def list(self, filter: str, order_by: str, limit: int | None) -> AsyncGenerator[AnySweep, None]:
        """See `Client.sweeps`."""
        request = sweep_pb2.ListSweepsRequest(parent=f"projects/{self._project}", filter=filter, order_by=order_by)
        async for message in listed(self._transport, self._transport.sweeps.ListSweeps, request, "sweeps", limit):
            yield self._bound(message)

    async def watch(self, name: str, deadline: float | None = None) -> AsyncGenerator[AnySweep, None]:
        """See `Sweep.watch`; `deadline`: time.monotonic() to give up at. Raises DeadlinePassed."""

        def start(timeout: float | None) -> Any:
            return self._transport.sweeps.WatchSweep(sweep_pb2.WatchSweepRequest(name=name), timeout=timeout)

        stream = self._transport.stream(start, lambda message: message.done, deadline=deadline)
        async with aclosing(stream) as messages:
            async for message in messages:
                yield self._bound(message.sweep)

    async def wait(
        self,
        name: str,
        timeout: float | None,  # noqa: ASYNC109 (the name that it has in Sweep)
        on_progress: Callable[[AnySweep], None] | None,
    ) -> AnySweep:
        """See `Sweep.wait`."""
        if timeout is not None:
            check_timeout(timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        report = on_progress or (lambda sweep: None)
        current = await self.get(name)
        report(current)
        try:
            if not current.state.is_terminal:
                async with aclosing(self.watch(name, deadline)) as sweeps:
                    async for current in sweeps:
                        report(current)
        except DeadlinePassed:
            raise SweepWaitTimeout(current, timeout or 0) from None
        raise_if_lost(current)
        return current

    async def points(
        self, name: str, *, optimal_only: bool = False, numbers: Sequence[int] = ()
    ) -> AsyncGenerator[SweepPoint, None]:
        """See `Sweep.points`; `numbers`: of the points, (): all."""
        request = sweep_pb2.ListSweepPointsRequest(parent=name, optimal_only=optimal_only, numbers=numbers)
        async for point in listed(self._transport, self._transport.sweeps.ListSweepPoints, request, "points"):
            yield sweep_convert.point(point)

    async def recommended(self, name: str) -> SweepPoint | None:
        """See `Sweep.recommended`."""
        chosen = (await self.get(name)).recommendation
        if chosen is None or not chosen.passed:
            return None
        return await self.point(name, chosen.point)

    async def point(self, name: str, number: int) -> SweepPoint | None:
        """The point with a number; None: there is none."""
        async with aclosing(self.points(name, numbers=[number])) as found:
            return await anext(found, None)

    async def events(self, name: str) -> AsyncGenerator[SweepEvent, None]:
        """See `Sweep.events`."""
        request = sweep_pb2.ListSweepEventsRequest(parent=name)
        async for event in listed(self._transport, self._transport.sweeps.ListSweepEvents, request, "events"):
            yield sweep_convert.event(event)

    async def cancel(self, name: str, reason: str, etag: str) -> AnySweep:
        """See `Sweep.cancel`."""
        request = sweep_pb2.CancelSweepRequest(name=name, reason=reason, etag=etag)
        return await self._sweep(self._transport.sweeps.CancelSweep, request, repeatable=not etag)

    async def pause(self, name: str, etag: str) -> AnySweep:
        """See `Sweep.pause`."""
        request = sweep_pb2.PauseSweepRequest(name=name, etag=etag)
        return await self._sweep(self._transport.sweeps.PauseSweep, request, repeatable=not etag)

    async def resume(self, name: str, etag: str) -> AnySweep:
        """See `Sweep.resume`."""
        request = sweep_pb2.ResumeSweepRequest(name=name, etag=etag)
        return await self._sweep(self._transport.sweeps.ResumeSweep, request, repeatable=not etag)

    async def retry(self, name: str, etag: str) -> AnySweep:
        """See `Sweep.retry`."""
        request = sweep_pb2.RetrySweepRequest(name=name, etag=etag)
        return await self._sweep(self._transport.sweeps.RetrySweep, request, repeatable=False)

    async def extend(
        self,
        name: str,
        axes: Mapping[str, Sequence[Any]] | None,
        points: Sequence[Mapping[str, Any]] | None,
        etag: str,
        on_upload: OnUpload,
        *,
        validate_only: bool,
    ) -> AnySweep:
        """See `Sweep.extend`."""

        def build(given: Mapping[str, Any]) -> sweep_pb2.ExtendSweepRequest:
            axes, points = given["axes"], given["points"]
            return sweep_message.extend_sweep_request(name, axes, points, etag, validate_only=validate_only)

        options, method = {"axes": axes, "points": points}, self._transport.sweeps.ExtendSweep
        answer = await self._uploads.call(
            options, visit_sweep, build, method, on_upload, is_whole=False, repeatable=not etag
        )
        return self._bound(answer)

    async def update_policy(self, name: str, etag: str, **policy: Unpack[PolicyOptions]) -> AnySweep:
        """See `Sweep.update_policy`."""
        request = sweep_message.update_policy_request(name, etag, **policy)
        return await self._sweep(self._transport.sweeps.UpdateSweepPolicy, request, repeatable=not etag)

    async def delete(self, name: str, etag: str) -> None:
        """See `Sweep.delete`."""
        request = sweep_pb2.DeleteSweepRequest(name=name, etag=etag)
        await self._transport.call(self._transport.sweeps.DeleteSweep, request, repeatable=False)

    async def download_recommended(
        self, name: str, directory: str | os.PathLike[str], on_progress: Report | None
    ) -> Path:
        """See `Sweep.download_recommended`."""
        sweep = await self.get(name)
        chosen = sweep.recommendation
        point = await self.point(name, chosen.point) if chosen and chosen.passed else None
        if point is None:
            raise NoPointPasses(sweep)
        return await self._download(point.artifact, directory, on_progress)

    async def download_front(
        self, name: str, directory: str | os.PathLike[str], on_progress: Report | None
    ) -> dict[int, Path]:
        """See `Sweep.download_front`."""
        folders = {}
        async with aclosing(self.points(name, optimal_only=True)) as front:
            async for point in front:
                folder = Path(directory) / folder_name(point)
                folders[point.number] = await self._download(point.artifact, folder, on_progress)
        return folders

    def _bound(self, message: sweep_pb2.Sweep) -> AnySweep:
        return self._bind(**sweep_convert.sweep_fields(message), calls=self)

    async def _sweep(self, method: Any, request: Any, *, repeatable: bool = True) -> AnySweep:
        return self._bound(await self._transport.call(method, request, repeatable=repeatable))


def raise_if_lost(sweep: SweepRecord) -> None:
    """Raises SweepFailed or SweepCancelled for a sweep that ended so."""
    if sweep.state is SweepState.FAILED:
        raise SweepFailed(sweep)
    if sweep.state is SweepState.CANCELLED:
        raise SweepCancelled(sweep)


def folder_name(point: SweepPoint) -> str:
    """7-density=0.03-method=movement: the number and the cell of a point, of characters that every system allows."""
    parts = [f"{name}={str(value).rpartition('/')[2]}" for name, value in point.cell.items()]
    return _UNSAFE.sub("_", "-".join([str(point.number), *parts]))[:_LONGEST]
