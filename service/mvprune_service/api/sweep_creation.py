"""CreateSweep and ExtendSweep: everything is checked before anything is stored."""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from mvprune.common.units import counted
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError, Violation, bad, invalid
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.access.threads import Threads
from mvprune_service.api.checks.data_checks import SECONDS, DataChecks
from mvprune_service.api.checks.hub_pins import HubPins, pin_models
from mvprune_service.api.checks.policies import with_defaults
from mvprune_service.api.checks.sweep_checks import MAX_ID, check_id
from mvprune_service.api.checks.sweep_plan import Surroundings, SweepPlan, plan_extension, plan_sweep
from mvprune_service.api.checks.ticket_plan import added_of, plan_study, plan_study_extension
from mvprune_service.api.checks.uploaded import UploadReader, uploads_of
from mvprune_service.api.messages import repeats, sweep_mapping
from mvprune_service.api.messages.names import existing, parse_parent, parse_sweep
from mvprune_service.clock import Clock, system_clock
from mvprune_service.db import beginnings, estimates, lifecycle, sweep_records, sweeps, teachers
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.sweeps import NewSweep
from mvprune_service.db.tables.sweeps import SweepRow
from mvprune_service.db.upload_uses import NoUpload
from mvprune_service.executors.base import Capacity
from mvprune_service.sweeps.points import NewPoint
from mvprune_service.sweeps.tickets import extended

_PARALLEL = 4
_PLANNED_AT_ONCE = 2  # sweeps: each takes memory


class SweepCreation:
    """Checks sweeps and creates them.

    Args:
        capacity: what the executor has; None where it does not answer.
        max_points: of a sweep.
        retention_seconds: of jobs that name none; None: for ever.
        uploads: reads what clients have sent; None: nothing.
        data: reads data files.
    """

    def __init__(
        self,
        db: Database,
        roots: Roots,
        capacity: Callable[[], Awaitable[Capacity | None]],
        *,
        max_points: int,
        retention_seconds: int | None = None,
        uploads: UploadReader | None = None,
        data: DataChecks | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._db = db
        self._data = data or DataChecks()
        self._uploads = uploads
        self._roots = roots
        self._administrators_roots = replace(roots, discreet=False)  # once: this looks at each folder
        self._capacity = capacity
        self._max_points = max_points
        self._retention_seconds = retention_seconds
        self._clock = clock
        self._threads = Threads("sweep", _PLANNED_AT_ONCE)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def create(self, request: sweep_pb2.CreateSweepRequest) -> sweep_pb2.Sweep:
        """The new sweep, or the one that the same request made before. Raises ApiError."""
        project, creator = parse_parent(request.parent), current_principal().id
        repeats.check_request_id(request.request_id)
        body = repeats.digest(request)
        known = await self._db.read(_known, project, request.request_id, body)
        if known is not None:
            return await self.shown(known)
        sweep = self._with_defaults(request.sweep)
        planner = plan_study if sweep.spec.HasField("tickets") else plan_sweep
        wanted = partial(planner, sweep, max_points=self._max_points)
        pins = await pin_models(sweep.spec, "sweep.spec", self._roots_of_caller(), self._threads)
        plan = await self._plan(wanted, project, pins, validate_only=request.validate_only)
        plan.violations += check_id(request.sweep_id)
        await self._check_jobs(plan, project)
        if plan.violations:
            raise invalid(*plan.violations)
        sweep_id = request.sweep_id or ids.new_job_id(f"{sweep.spec.base.task or 'tickets'}-sweep"[:MAX_ID])
        new = NewSweep(
            project=project,
            sweep_id=sweep_id,
            spec=sweep.spec,
            policy=sweep.policy,
            creator=creator,
            display_name=sweep.display_name,
            labels=sweep.labels,
            notes=plan.notes,
            model_sizes=plan.model_sizes,
            inputs_us=plan.inputs_us,
            points=plan.points,
            uploads=plan.uploads,
        )
        name = ids.SweepName(project, sweep_id)
        if request.validate_only:
            if await self._db.read(sweep_records.sweep_named, name) is not None:
                raise repeats.exists("sweep", name)
            return await self._validated(name, sweep, plan)

        def work(tx: Tx) -> SweepRow:
            made = _known(tx.conn, project, request.request_id, body)
            if made is not None:
                return made
            row = sweeps.create(tx, new, actor=creator)
            if request.request_id:
                sweeps.remember_request(tx, row, request.request_id, body)
            return row

        try:
            return await self.shown(await self._db.write(work))
        except IntegrityError:
            raise repeats.exists("sweep", name) from None
        except NoUpload as error:
            raise _deleted(error) from None

    async def extend(self, request: sweep_pb2.ExtendSweepRequest) -> sweep_pb2.Sweep:
        """The sweep with further points; with `validate_only`, as it would be.

        Raises:
            ApiError, IllegalSweepCommand, EtagMismatch.
        """
        name, actor = parse_sweep(request.name), current_principal().id
        row = existing(await self._db.read(sweep_records.sweep_named, name), name)
        sweep = await self.shown(row)
        if sweep.spec.HasField("search"):
            raise invalid(Violation("name", f"must be a sweep with points of its own, got {name}, which searches"))
        wanted = partial(plan_extension, sweep, request)
        if is_study := sweep.spec.HasField("tickets"):
            wanted = partial(plan_study_extension, sweep, request, max_points=self._max_points)
        pins = await pin_models(request, "", self._roots_of_caller(), self._threads)
        plan = await self._plan(wanted, name.project, pins, validate_only=request.validate_only)
        await self._check_jobs(plan, name.project)
        if plan.violations:
            raise invalid(*plan.violations)

        def new_points(conn: Connection, uid: str) -> list[NewPoint]:
            known = {point.spec_sha256 for point in sweep_records.points_of(conn, uid)}
            added = [point for point in plan.points if point.sha256 not in known]
            if (total := len(known) + len(added)) > self._max_points:
                raise invalid(bad("axes", total, f"at most {self._max_points:,} points with those there are"))
            return added

        if request.validate_only:
            sweeps.check_extensible(row, request.etag)
            added = plan.checked if is_study else await self._db.read(new_points, row.uid)
            return await self._extended(sweep, _extended_spec(sweep.spec, request, added), added, plan)

        def work(tx: Tx) -> SweepRow:
            locked = existing(sweeps.lock_sweep_named(tx, name), name)
            added = new_points(tx.conn, locked.uid)
            spec = _extended_spec(sweep_pb2.SweepSpec.FromString(locked.spec), request, added)
            notes = [*locked.notes, *(note for note in plan.notes if note not in locked.notes)]
            return sweeps.extend(
                tx,
                locked,
                added,
                actor=actor,
                etag=request.etag,
                spec=lifecycle.canonical(spec),
                notes=notes,
                model_sizes=locked.model_sizes | plan.model_sizes,
                inputs_us=max(locked.inputs_us, plan.inputs_us),
                uploads=plan.uploads,
            )

        try:
            return await self.shown(await self._db.write(work))
        except NoUpload as error:
            raise _deleted(error) from None

    async def shown(self, row: SweepRow) -> sweep_pb2.Sweep:
        """A sweep with its counts and its cost."""

        def read(conn: Connection) -> sweep_pb2.Sweep:
            usage = sweep_records.usage_of(conn, row.uid, self._clock())
            return sweep_mapping.sweep(row, sweep_records.counts_of(conn, row.uid), usage)

        return await self._db.read(read)

    def _roots_of_caller(self) -> Roots:
        return self._administrators_roots if current_principal().is_administrator else self._roots

    async def _plan(
        self, plan: Callable[..., SweepPlan], project: str, pins: HubPins, *, validate_only: bool = False
    ) -> SweepPlan:
        """Calls `plan`, which may wait for a disk, with the caller's roots and the executor's capacity. What is known
        of models of the Hub is added."""
        roots, capacity = self._roots_of_caller(), await self._capacity()
        with uploads_of(self._uploads, project, may_be_missing=validate_only) as uploaded:
            around = Surroundings(roots, capacity, uploaded, self._data, project, time.monotonic() + SECONDS)
            work: Callable[[], SweepPlan] = partial(plan, around=around)
            found = await self._threads.run(work)
        found.violations += [one for one in pins.violations if one not in found.violations]
        found.notes += pins.notes
        return found

    async def _check_jobs(self, plan: SweepPlan, project: str) -> None:
        """Adds a violation where a teacher's job is none that can teach, or the job of a mask has none."""
        for spec, place in plan.teachers.values():
            try:
                await self._db.read(teachers.named, project, spec)
            except teachers.NoTeacher as error:
                plan.violations.append(Violation(place, str(error)))
        for spec, place in plan.masks.values():
            size = plan.model_sizes.get(spec.model)
            known = job_pb2.ModelSize.FromString(base64.b64decode(size)) if size else None
            try:
                await self._db.read(beginnings.pin, project, spec, known)
            except beginnings.NoBeginning as error:
                plan.violations.append(Violation(place, str(error)))

    def _with_defaults(self, given: sweep_pb2.Sweep) -> sweep_pb2.Sweep:
        """The sweep with its defaults written out."""
        sweep = sweep_pb2.Sweep()
        sweep.CopyFrom(given)
        if sweep.spec.WhichOneof("strategy") is None:
            sweep.spec.grid.SetInParent()
        sweep.spec.job_policy.CopyFrom(with_defaults(sweep.spec.job_policy, self._retention_seconds))
        sweep.policy.CopyFrom(policy_with_defaults(sweep.policy))
        return sweep

    async def _extended(
        self, sweep: sweep_pb2.Sweep, spec: sweep_pb2.SweepSpec, added: Sequence[NewPoint], plan: SweepPlan
    ) -> sweep_pb2.Sweep:
        """The answer of an extension that stores nothing: the sweep as it would be, and what the new points take."""
        answer = sweep_pb2.Sweep()
        answer.CopyFrom(sweep)
        if not added:
            return answer
        answer.spec.CopyFrom(spec)
        answer.notes.extend(note for note in plan.notes if note not in sweep.notes)
        answer.counts.total += len(added)
        answer.counts.pending += len(added)
        project = parse_sweep(sweep.name).project
        answer.estimate.CopyFrom(await self._estimate(project, sweep, plan, added, len(added)))
        return answer

    async def _estimate(
        self, project: str, sweep: sweep_pb2.Sweep, plan: SweepPlan, points: Sequence[NewPoint], most_jobs: int
    ) -> sweep_pb2.SweepEstimate:
        """The estimate for points."""
        resources = sweep.spec.job_policy.resources
        asked = [estimates.Asked(one.spec, resources, plan.steps.get(one.sha256, 0)) for one in points]
        return await self._db.read(estimates.estimate_sweep, project, asked, most_jobs)

    async def _validated(self, name: ids.SweepName, sweep: sweep_pb2.Sweep, plan: SweepPlan) -> sweep_pb2.Sweep:
        """The answer of a request that stores nothing."""
        answer = sweep_pb2.Sweep(name=str(name), creator=current_principal().id, notes=plan.notes)
        for part in ("spec", "policy"):
            getattr(answer, part).CopyFrom(getattr(sweep, part))
        answer.labels.update(sweep.labels)
        answer.display_name = sweep.display_name
        found = await self._estimate(name.project, sweep, plan, plan.checked, plan.most_jobs)
        if sweep.spec.search.HasField("time"):  # it is chosen by a run that is measured
            found = sweep_pb2.SweepEstimate(jobs=plan.most_jobs, runtime=sweep.spec.search.time)
            found.text = f"at most {counted(found.jobs, 'job')} in {found.runtime.ToSeconds() / 60:g} min"
        answer.estimate.CopyFrom(found)
        answer.counts.total = answer.counts.pending = len(plan.points)
        return answer


def _extended_spec(
    spec: sweep_pb2.SweepSpec, request: sweep_pb2.ExtendSweepRequest, added: Sequence[NewPoint]
) -> sweep_pb2.SweepSpec:
    """The spec of a sweep with what a request appends."""
    if spec.HasField("tickets"):
        return extended(spec, added_of(request))
    result = sweep_pb2.SweepSpec()
    result.CopyFrom(spec)
    result.points.extend(sweep_mapping.struct(point.cell) for point in added)
    return result


def _deleted(error: NoUpload) -> ApiError:
    """An upload was deleted after the sweep was checked."""
    return invalid(Violation("sweep.spec", str(error)))


def policy_with_defaults(given: sweep_pb2.SweepPolicy) -> sweep_pb2.SweepPolicy:
    """The policy with its defaults written out."""
    policy = sweep_pb2.SweepPolicy()
    policy.CopyFrom(given)
    policy.parallel = policy.parallel or _PARALLEL
    policy.on_failure = policy.on_failure or sweep_pb2.SweepPolicy.LET_RUN
    return policy


def _known(conn: Connection, project: str, request_id: str, body: str) -> SweepRow | None:
    """The sweep that this request made. Raises ApiError where the id belongs to another request."""
    found = sweep_records.sweep_request(conn, project, request_id) if request_id else None
    if found is None:
        return None
    repeats.check_same("sweep", request_id, found.body_sha256, body)
    return sweep_records.sweep_by_uid(conn, found.sweep_uid)
