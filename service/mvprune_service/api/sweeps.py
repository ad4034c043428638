"""SweepService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from grpc.aio import ServicerContext as Context

from mvprune.v1 import sweep_pb2, sweep_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.errors import (
    Violation,
    bad,
    etag_mismatch,
    invalid,
    not_found,
    precondition,
    wrong_state,
)
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.checks.sweep_checks import check_policy_of_sweep
from mvprune_service.api.messages import sweep_mapping
from mvprune_service.api.messages.lists import SWEEP_LIST
from mvprune_service.api.messages.names import existing, parse_parent, parse_sweep
from mvprune_service.api.messages.pagination import make_page, page_size, read_number
from mvprune_service.api.sweep_creation import SweepCreation, policy_with_defaults
from mvprune_service.changes import Changes, wait_for_change
from mvprune_service.db import lifecycle, sweep_records, sweeps
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.sweeps import SweepRow
from mvprune_service.domain.sweeping import ENDED, IllegalSweepCommand

T = TypeVar("T")
_RECHECK_SECONDS = 10.0  # a watch looks again even if no change was announced
_SHORTEST_SECONDS = 1.0  # between two messages of a watch


class SweepServicer(sweep_pb2_grpc.SweepServiceServicer):
    """Sweeps: create, list, watch, steer, delete."""

    def __init__(self, db: Database, changes: Changes, creation: SweepCreation) -> None:
        self._db = db
        self._changes = changes
        self._creation = creation

    async def CreateSweep(self, request: sweep_pb2.CreateSweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._creation.create(request)

    async def GetSweep(self, request: sweep_pb2.GetSweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._creation.shown(await self._sweep(parse_sweep(request.name)))

    async def ListSweeps(self, request: sweep_pb2.ListSweepsRequest, context: Context) -> sweep_pb2.ListSweepsResponse:
        project, asked = parse_parent(request.parent), SWEEP_LIST.asked(request)
        rows = await self._db.read(sweep_records.page_of_sweeps, project, asked.page)
        shown = {row.uid: await self._creation.shown(row) for row in rows}
        found, token = asked.answer(rows, lambda row: shown[row.uid])
        return sweep_pb2.ListSweepsResponse(sweeps=found, next_page_token=token)

    async def WatchSweep(
        self, request: sweep_pb2.WatchSweepRequest, context: Context
    ) -> AsyncIterator[sweep_pb2.WatchSweepResponse]:
        name = parse_sweep(request.name)
        sent: sweep_pb2.Sweep | None = None
        with self._changes.of_all() as changed:  # of its jobs too
            while True:
                row = await self._sweep(name)
                sweep = await self._creation.shown(row)
                if sweep != sent:
                    yield sweep_pb2.WatchSweepResponse(sweep=sweep, done=row.state in ENDED)
                    sent = sweep
                if row.state in ENDED:
                    return
                await asyncio.sleep(_SHORTEST_SECONDS)
                await wait_for_change(changed, _RECHECK_SECONDS)

    async def ListSweepPoints(
        self, request: sweep_pb2.ListSweepPointsRequest, context: Context
    ) -> sweep_pb2.ListSweepPointsResponse:
        sweep, size = await self._sweep(parse_sweep(request.parent, "parent")), page_size(request.page_size)
        after, only = read_number(request.page_token), list(request.numbers) or None
        if request.optimal_only:
            only = [number for number in sweep.front if only is None or number in only]
        rows = await self._db.read(sweep_records.page_of_points, sweep.uid, after, size + 1, only)
        points, token = make_page(
            rows, size, lambda row: sweep_mapping.point(row, sweep), lambda row: (row.point.number,)
        )
        return sweep_pb2.ListSweepPointsResponse(points=points, next_page_token=token)

    async def ListSweepEvents(
        self, request: sweep_pb2.ListSweepEventsRequest, context: Context
    ) -> sweep_pb2.ListSweepEventsResponse:
        sweep, size = await self._sweep(parse_sweep(request.parent, "parent")), page_size(request.page_size)
        after = read_number(request.page_token)
        rows = await self._db.read(sweep_records.sweep_events_of, sweep.uid, after, size + 1)
        events, token = make_page(rows, size, sweep_mapping.event, lambda row: (row.sequence,))
        return sweep_pb2.ListSweepEventsResponse(events=events, next_page_token=token)

    async def CancelSweep(self, request: sweep_pb2.CancelSweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._command(request, partial(sweeps.cancel, reason=request.reason))

    async def PauseSweep(self, request: sweep_pb2.PauseSweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._command(request, sweeps.pause)

    async def ResumeSweep(self, request: sweep_pb2.ResumeSweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._command(request, sweeps.resume)

    async def RetrySweep(self, request: sweep_pb2.RetrySweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._command(request, sweeps.retry)

    async def ExtendSweep(self, request: sweep_pb2.ExtendSweepRequest, context: Context) -> sweep_pb2.Sweep:
        return await self._answer(parse_sweep(request.name), self._creation.extend(request))

    async def UpdateSweepPolicy(self, request: sweep_pb2.UpdateSweepPolicyRequest, context: Context) -> sweep_pb2.Sweep:
        actor, given = current_principal().id, request.policy
        known = sweep_pb2.SweepPolicy.DESCRIPTOR.fields_by_name
        names = list(request.update_mask.paths) or [field.name for field, _ in given.ListFields()]
        for index, name in enumerate(names):
            if name not in known:
                raise invalid(bad(f"update_mask.paths[{index}]", name, f"a field of SweepPolicy: {', '.join(known)}"))

        def work(tx: Tx, row: SweepRow) -> SweepRow:
            policy = sweep_pb2.SweepPolicy.FromString(row.policy)
            for name in names:
                policy.ClearField(name)
            policy.MergeFrom(_only(given, names))
            violations = list(check_policy_of_sweep(policy, sweep_pb2.SweepSpec.FromString(row.spec)))
            if policy.own_baselines != sweep_pb2.SweepPolicy.FromString(row.policy).own_baselines:
                violations.append(bad("sweep.policy.own_baselines", "a change", "as it was when the sweep was created"))
            if violations:
                raise invalid(*(Violation(field.removeprefix("sweep."), text) for field, text in violations))
            return sweeps.update_policy(tx, row, policy_with_defaults(policy), actor=actor, etag=request.etag)

        return await self._change(request.name, work)

    async def DeleteSweep(
        self, request: sweep_pb2.DeleteSweepRequest, context: Context
    ) -> sweep_pb2.DeleteSweepResponse:
        name = parse_sweep(request.name)

        def work(tx: Tx) -> None:
            row = sweeps.lock_sweep_named(tx, name)
            if row is not None:
                sweeps.remove(tx, row, etag=request.etag)
            elif not request.allow_missing:
                raise not_found(str(name))

        try:
            await self._answer(name, self._db.write(work))
        except lifecycle.NotTerminal:
            message = f"{name} or one of its jobs is not finished; cancel it first"
            raise precondition("SWEEP_NOT_FINISHED", message) from None
        return sweep_pb2.DeleteSweepResponse()

    async def _sweep(self, name: ids.SweepName) -> SweepRow:
        return existing(await self._db.look_up(sweep_records.sweep_named, name), name)

    async def _command(self, request: Any, command: Callable[..., SweepRow]) -> sweep_pb2.Sweep:
        """A sweep after a command of the caller."""
        actor = current_principal().id
        return await self._change(request.name, lambda tx, row: command(tx, row, actor=actor, etag=request.etag))

    async def _change(self, given: str, work: Callable[[Tx, SweepRow], SweepRow]) -> sweep_pb2.Sweep:
        name = parse_sweep(given)

        def locked(tx: Tx) -> SweepRow:
            return work(tx, existing(sweeps.lock_sweep_named(tx, name), name))

        return await self._creation.shown(await self._answer(name, self._db.write(locked)))

    async def _answer(self, name: ids.SweepName, changing: Awaitable[T]) -> T:
        """The result of a change. Raises ApiError where it does not apply."""
        try:
            return await changing
        except lifecycle.EtagMismatch:
            raise etag_mismatch(name) from None
        except IllegalSweepCommand as error:
            raise wrong_state(name, error.state, error.command, has_ended=error.state in ENDED) from None


def _only(policy: sweep_pb2.SweepPolicy, names: list[str]) -> sweep_pb2.SweepPolicy:
    """The fields with these names."""
    kept = sweep_pb2.SweepPolicy()
    kept.CopyFrom(policy)
    for field, _ in policy.ListFields():
        if field.name not in names:
            kept.ClearField(field.name)
    return kept
