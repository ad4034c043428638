"""CreateJob: everything is checked before anything is stored, and a request that is repeated makes no second job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import grpc
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from mvprune.common.tracing import TRACEPARENT
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError, Violation, invalid
from mvprune_service.api.access.principal import current_principal
from mvprune_service.api.access.threads import Threads
from mvprune_service.api.checks.data_checks import DataChecks
from mvprune_service.api.checks.hub_pins import pin_models
from mvprune_service.api.checks.policies import with_defaults
from mvprune_service.api.checks.specs import Checker
from mvprune_service.api.checks.uploaded import UploadReader, uploads_of
from mvprune_service.api.messages import mapping, repeats
from mvprune_service.api.messages.names import parse_parent
from mvprune_service.db import beginnings, estimates, lifecycle, quotas, records, teachers
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.lifecycle import NewJob
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.db.upload_uses import NoUpload
from mvprune_service.domain.density import fill_density
from mvprune_service.domain.uploading import references
from mvprune_service.executors.base import Capacity, Executor
from mvprune_service.observability.probes import Probe, Problems

_CAPACITY_SECONDS = 5.0  # that a submit waits for it
_READ_AT_ONCE = 4  # jobs whose files are looked into: each takes memory


def capacity_of(executor: Executor) -> Callable[[], Awaitable[Capacity | None]]:
    """Asks an executor for its capacity; None where it does not answer in time."""
    ask = Probe("executor", lambda: asyncio.to_thread(executor.capacity), Problems(), _CAPACITY_SECONDS, fresh=0.0)
    return ask.get


class Submissions:
    """Checks jobs and creates them.

    Args:
        capacity: what the executor has; None where it does not answer.
        quota: of jobs in the queue.
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
        quota: quotas.QueueQuota,
        retention_seconds: int | None = None,
        uploads: UploadReader | None = None,
        data: DataChecks | None = None,
    ) -> None:
        self._db = db
        self._data = data or DataChecks()
        self._estimates = estimates.Estimates(db)
        self._uploads = uploads
        self._roots = roots
        self._administrators_roots = replace(roots, discreet=False)  # once: this looks at each folder
        self.capacity = capacity
        self._queue_quota = quota
        self._retention_seconds = retention_seconds
        self._threads = Threads("submit", _READ_AT_ONCE)
        self._turns = asyncio.Semaphore(db.creating)

    def close(self) -> None:
        """Ends its threads. No call may follow."""
        self._threads.close()

    async def create(self, request: job_pb2.CreateJobRequest, traceparent: str = "") -> job_pb2.Job:
        """The new job, or the one that the same request made before. Raises ApiError."""
        project, creator = parse_parent(request.parent), current_principal().id
        repeats.check_request_id(request.request_id)
        body = repeats.digest(request) if request.request_id else ""
        note = fill_density(request.job.spec)
        try:
            checker, teacher, pinned, estimate = await self._check(request, project)
            checker.notes += (note,) if note else ()
        except ApiError:
            # A request that was accepted once is not refused when it is repeated.
            known = await self._db.read(_known, project, request.request_id, body)
            if known is None:
                raise
            return mapping.job(known)
        spec = request.job.spec
        policy = with_defaults(request.job.policy, self._retention_seconds)

        def new_job() -> NewJob:
            return NewJob(
                project=project,
                job_id=request.job_id or ids.new_job_id(spec.task),  # another one each time: an id may be taken
                spec=spec,
                policy=policy,
                creator=creator,
                display_name=request.job.display_name,
                labels=request.job.labels,
                model_size=checker.size,
            )

        if request.validate_only:
            name = ids.JobName(project, new_job().job_id)
            known = await self._db.read(_known, project, request.request_id, body)
            if known is not None:
                return _noted(mapping.job(known), checker, estimate)
            if await self._db.look_up(records.job_named, name) is not None:
                raise repeats.exists("job", name)
            named = pinned if teacher is None else teachers.name_job(pinned, teacher)
            job = job_pb2.Job(name=str(name), spec=named, policy=policy, model_size=checker.size, creator=creator)
            return _noted(job, checker, estimate)

        details = {TRACEPARENT: traceparent} if traceparent else {}

        def work(tx: Tx) -> JobRow:
            known = _known(tx.conn, project, request.request_id, body)
            if known is not None:
                return known
            new = teachers.with_teacher(tx, beginnings.with_beginning(tx.conn, new_job()))
            self.check_room(tx, project)  # after its teacher, which takes room too
            job = lifecycle.create(tx, new, actor=creator, details=details)
            if request.request_id:
                lifecycle.remember_request(tx, job, request.request_id, body)
            return job

        row = await self._create(work, ids.JobName(project, request.job_id))
        return _noted(mapping.job(row), checker, estimate)

    async def _estimate(self, request: job_pb2.CreateJobRequest, project: str, checker: Checker) -> job_pb2.JobEstimate:
        """The phases of a job, and how long they take."""
        job = request.job
        asked, result = estimates.Asked(job.spec, job.policy.resources, checker.steps), checker.outlook
        seconds, result.text = await self._estimates.job(project, asked, fresh=request.validate_only)
        if seconds is not None:
            result.runtime.FromMilliseconds(round(1000 * seconds))
        return result

    def check_room(self, tx: Tx, project: str) -> None:
        """Raises ApiError (RESOURCE_EXHAUSTED) where the project has as many jobs in the queue as it may."""
        try:
            self._queue_quota.check(tx.conn, project)
        except quotas.QueueFull as error:
            message = (
                f"jobs of projects/{error.project} in the queue must be at most {error.limit}; wait until one has "
                "started, or ask the operator for a higher quota"
            )
            raise ApiError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED", message) from None

    async def _check(
        self, request: job_pb2.CreateJobRequest, project: str
    ) -> tuple[Checker, JobRow | None, job_pb2.CompressionSpec, job_pb2.JobEstimate]:
        """The checker, the job of the teacher if there is one, the spec with the artifact of its mask, and what the
        job will take. Raises ApiError with all violations."""
        roots = self._administrators_roots if current_principal().is_administrator else self._roots
        teacher = None
        pins = await pin_models(request.job.spec, "job.spec", roots, self._threads)
        uploads = self._uploads if references(request.job.spec) else None
        with uploads_of(uploads, project, may_be_missing=request.validate_only) as uploaded:
            checker = Checker(request.job, request.job_id, roots, uploaded=uploaded, data=self._data, owner=project)
            if checker.reads_files:
                await self._threads.run(checker.check)
            else:
                checker.check()
        if request.job.policy.HasField("resources"):
            capacity = await self.capacity()
            if capacity is not None:  # else the scheduler decides
                checker.check_feasible(capacity)
        checker.violations += [one for one in pins.violations if one not in checker.violations]
        checker.notes += pins.notes
        spec, role = request.job.spec, teachers.role_of(request.job.spec)
        if role is not None and getattr(spec, role).WhichOneof("source") == "job":
            try:
                teacher = await self._db.read(teachers.named, project, spec)
                if teachers.name_job(spec, teacher).teacher.job:
                    base = job_pb2.CompressionSpec.FromString(teacher.spec)
                    await self._threads.run(partial(checker.check_teachers_base, f"job.spec.{role}.job", base))
            except teachers.NoTeacher as error:
                checker.violations.append(Violation(error.field, str(error)))
        pinned = spec
        if beginnings.begins_with(spec):
            try:
                pinned = await self._db.read(beginnings.pin, project, spec, checker.size)
            except beginnings.NoBeginning as error:
                checker.violations.append(Violation(error.field, str(error)))
        if checker.violations:
            raise invalid(*checker.violations)
        return checker, teacher, pinned, await self._estimate(request, project, checker)

    async def _create(self, work: Callable[[Tx], JobRow], name: ids.JobName) -> JobRow:
        """Writes. If an equal request, or one that creates the same teacher, was faster, the second try sees that."""
        try:
            async with self._turns:
                try:
                    return await self._db.write(work)
                except IntegrityError:
                    return await self._db.write(work)
        except IntegrityError:
            raise repeats.exists("job", name) from None
        except teachers.NoTeacher as error:
            raise invalid(Violation(error.field, str(error))) from None
        except beginnings.NoBeginning as error:  # the artifact was deleted after the job was checked
            raise invalid(Violation(error.field, str(error))) from None
        except NoUpload as error:  # it was deleted after the job was checked
            raise invalid(Violation("job.spec", str(error))) from None


def _noted(job: job_pb2.Job, checker: Checker, estimate: job_pb2.JobEstimate) -> job_pb2.Job:
    """The answer, with notes about the data in place of those of a result, and an estimate."""
    job.estimate.CopyFrom(estimate)
    job.ClearField("notes")
    job.notes.extend(checker.notes)
    return job


def _known(conn: Connection, project: str, request_id: str, body: str) -> JobRow | None:
    """The job that this request made. Raises ApiError where the id belongs to another request."""
    found = records.request(conn, project, request_id) if request_id else None
    if found is None:
        return None
    repeats.check_same("job", request_id, found.body_sha256, body)
    return records.job_by_uid(conn, found.job_uid)
