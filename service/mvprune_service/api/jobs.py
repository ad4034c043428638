"""JobService."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from sqlalchemy import Connection, Row
from sqlalchemy.exc import IntegrityError

from mvprune.references import Roots
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service import ids
from mvprune_service.api import mapping
from mvprune_service.api.errors import ApiError, Violation, invalid, not_found, precondition
from mvprune_service.api.pagination import make_token, page_size, read_token
from mvprune_service.api.specs import Checker, with_defaults
from mvprune_service.changes import Changes, wait_for_change
from mvprune_service.clock import SECOND
from mvprune_service.db import lifecycle, records, teachers
from mvprune_service.db.database import Database, Tx
from mvprune_service.domain.machine import TERMINAL, IllegalTransition, JobState
from mvprune_service.executors.base import Executor, ExecutorUnavailable

_DEFAULT_GRACE = 10
_RECHECK_SECONDS = 10.0  # streams look again even if no change was announced
_LOG_CHUNK = 64 << 10
_EVENTS = 200
_TEACHER_JOB = "job.spec.teacher.job"
USER = "user"


class JobServicer(job_pb2_grpc.JobServiceServicer):
    """Jobs: submit, poll, watch, cancel, retry, delete."""

    def __init__(self, db: Database, changes: Changes, roots: Roots, executor: Executor) -> None:
        self._db = db
        self._changes = changes
        self._roots = roots
        self._executor = executor

    async def CreateJob(self, request: job_pb2.CreateJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        project = _project(request.parent)
        if len(request.request_id) > 64 or not request.request_id.isprintable():
            raise invalid(Violation("request_id", f"got {request.request_id[:64]!r}; allowed: 64 printable characters"))
        body = _digest(request)
        known = await self._db.read(_request, project, request.request_id, body)
        if known is not None:
            return mapping.job(known)
        checker = Checker(request.job, request.job_id, self._roots)
        await asyncio.to_thread(checker.check)
        await self._check_feasible(checker)
        spec, teacher = request.job.spec, None
        try:
            if spec.teacher.WhichOneof("source") == "job":
                teacher = await self._db.read(teachers.named, project, spec)
        except teachers.NoTeacher as error:
            checker.violations.append(Violation(_TEACHER_JOB, str(error)))
        if checker.violations:
            raise invalid(*checker.violations)
        job_id = request.job_id or ids.new_job_id(spec.task)
        policy = with_defaults(request.job.policy)
        if request.validate_only:
            name = str(ids.JobName(project, job_id))
            return job_pb2.Job(name=name, spec=_taught(spec, teacher), policy=policy, model_size=checker.size)
        values = {
            "project": project,
            "job_id": job_id,
            "display_name": request.job.display_name,
            "policy": _canonical(policy),
            "labels": dict(request.job.labels),
            "model_size": checker.size and _canonical(checker.size),
        }

        def work(tx: Tx) -> Row[Any]:
            known = _request(tx.conn, project, request.request_id, body)
            if known is not None:
                return known
            teacher = None
            if spec.teacher.WhichOneof("source") == "job":
                teacher = teachers.named(tx.conn, project, spec)
            elif spec.teacher.train:
                teacher = teachers.trained(tx, values, spec, max_attempts=policy.max_attempts, actor=USER)
            row = values | {"spec": _canonical(_taught(spec, teacher))}
            if teacher is not None:
                row |= {"teacher_uid": teacher.uid, "teacher_sha256": teacher.artifact_sha256}
            job = lifecycle.create(tx, row, max_attempts=policy.max_attempts, actor=USER)
            if request.request_id:
                lifecycle.remember_request(tx, job, request.request_id, body)
            return job

        return mapping.job(await self._create(work, ids.JobName(project, job_id)))

    async def _create(self, work: Callable[[Tx], Row[Any]], name: ids.JobName) -> Row[Any]:
        """Writes. A race with an equal request, or for the same teacher, is lost once: then its winner is seen."""
        try:
            try:
                return await self._db.write(work)
            except IntegrityError:
                return await self._db.write(work)
        except IntegrityError:
            message = f"a job {name} exists already"
            raise ApiError(grpc.StatusCode.ALREADY_EXISTS, "ALREADY_EXISTS", message) from None
        except teachers.NoTeacher as error:
            raise invalid(Violation(_TEACHER_JOB, str(error))) from None

    async def _check_feasible(self, checker: Checker) -> None:
        try:
            capacity = await asyncio.to_thread(self._executor.capacity)
        except ExecutorUnavailable:
            return  # not known now; the scheduler will see
        checker.check_feasible(capacity)

    async def GetJob(self, request: job_pb2.GetJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        return mapping.job(await self._job(job_name(request.name)))

    async def ListJobs(
        self, request: job_pb2.ListJobsRequest, context: grpc.aio.ServicerContext
    ) -> job_pb2.ListJobsResponse:
        project, size = _project(request.parent), page_size(request.page_size)
        key: Any = read_token(request.page_token, int, str)
        rows = await self._db.read(records.page_of_jobs, project, key, size + 1)
        token = make_token(rows[size - 1].create_us, rows[size - 1].uid) if len(rows) > size else ""
        return job_pb2.ListJobsResponse(jobs=[mapping.job(row) for row in rows[:size]], next_page_token=token)

    async def WatchJob(
        self, request: job_pb2.WatchJobRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[job_pb2.WatchJobResponse]:
        name, after = job_name(request.name), request.after_sequence
        if after < 0:
            raise invalid(Violation("after_sequence", f"got {after}; allowed: 0 and up"))
        uid = (await self._job(name)).uid
        with self._changes.of_job(uid) as changed:
            version = -1
            while True:
                job, events = await self._db.read(records.job_with_events, name, uid, after, _EVENTS)
                if job is None or job.uid != uid:
                    raise not_found(str(name))
                more = len(events) == _EVENTS
                done = job.state in TERMINAL and not more
                if job.version != version or done:
                    after = max([after, *(event.sequence for event in events)])
                    yield job_pb2.WatchJobResponse(
                        sequence=after, job=mapping.job(job), events=[mapping.event(e) for e in events], done=done
                    )
                if done:
                    return
                version = -1 if more else job.version
                if not more:
                    await wait_for_change(changed, _RECHECK_SECONDS)

    async def CancelJob(self, request: job_pb2.CancelJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        grace = request.grace.seconds if request.HasField("grace") else _DEFAULT_GRACE
        if not 0 <= grace <= 3600:
            raise invalid(Violation("grace", f"got {grace}s; allowed: 0 s to 1 h"))
        if len(request.reason) > 1000:
            raise invalid(Violation("reason", f"got {len(request.reason)} characters; allowed: at most 1000"))
        return await self._change(
            request.name,
            lambda tx, job: lifecycle.cancel(tx, job, reason=request.reason, grace_us=grace * SECOND, actor=USER),
        )

    async def RetryJob(self, request: job_pb2.RetryJobRequest, context: grpc.aio.ServicerContext) -> job_pb2.Job:
        def work(tx: Tx, job: Row[Any]) -> Row[Any]:
            policy = job_pb2.ExecutionPolicy.FromString(job.policy)
            return lifecycle.retry(tx, job, max_attempts=policy.max_attempts, actor=USER)

        return await self._change(request.name, work)

    async def DeleteJob(
        self, request: job_pb2.DeleteJobRequest, context: grpc.aio.ServicerContext
    ) -> job_pb2.DeleteJobResponse:
        name = job_name(request.name)

        def work(tx: Tx) -> None:
            job = lifecycle.lock_job_named(tx, name)
            if job is not None:
                lifecycle.remove(tx, job, etag=request.etag)
            elif not request.allow_missing:
                raise not_found(str(name))

        try:
            await self._db.write(work)
        except lifecycle.NotTerminal:
            raise precondition("JOB_NOT_FINISHED", f"{name} is not finished; cancel it first") from None
        except lifecycle.EtagMismatch:
            raise ApiError(grpc.StatusCode.ABORTED, "ETAG_MISMATCH", f"{name} has changed; read it again") from None
        return job_pb2.DeleteJobResponse()

    async def ListJobEvents(
        self, request: job_pb2.ListJobEventsRequest, context: grpc.aio.ServicerContext
    ) -> job_pb2.ListJobEventsResponse:
        job, size = await self._job(job_name(request.parent, "parent")), page_size(request.page_size)
        after = _after(request.page_token)
        rows = await self._db.read(records.events_of, job.uid, after, size + 1)
        token = make_token(rows[size - 1].sequence) if len(rows) > size else ""
        return job_pb2.ListJobEventsResponse(events=[mapping.event(row) for row in rows[:size]], next_page_token=token)

    async def ListAttempts(
        self, request: job_pb2.ListAttemptsRequest, context: grpc.aio.ServicerContext
    ) -> job_pb2.ListAttemptsResponse:
        name, size = job_name(request.parent, "parent"), page_size(request.page_size)
        job, after = await self._job(name), _after(request.page_token)
        rows = await self._db.read(records.attempts_of, job.uid, after, size + 1)
        token = make_token(rows[size - 1].number) if len(rows) > size else ""
        return job_pb2.ListAttemptsResponse(
            attempts=[mapping.attempt(row, name) for row in rows[:size]], next_page_token=token
        )

    async def FollowLogs(
        self, request: job_pb2.FollowLogsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[job_pb2.FollowLogsResponse]:
        name = ids.parse_attempt(request.attempt)
        if name is None:
            raise invalid(
                Violation("attempt", f"got {request.attempt[:200]!r}; allowed: projects/P/jobs/J/attempts/N or …/-")
            )
        if request.offset < 0:
            raise invalid(Violation("offset", f"got {request.offset}; allowed: 0 and up"))
        job = await self._job(ids.JobName(name.project, name.job))
        offset = request.offset
        with self._changes.of_job(job.uid) as changed:
            while True:
                attempt = await self._db.read(records.attempt_named, name)
                if attempt is not None:
                    # A retry must not splice another attempt's bytes into this stream.
                    name = name._replace(number=attempt.number)
                    uid = attempt.uid
                    data = await self._db.read(records.read_log, uid, offset, _LOG_CHUNK)
                    if data:
                        yield job_pb2.FollowLogsResponse(offset=offset, data=data)
                        offset += len(data)
                        continue
                elif name.number is not None:
                    raise not_found(str(name))
                job = await self._job(ids.JobName(name.project, name.job))
                if not request.follow or (attempt is not None and records.is_over(attempt)) or job.state in TERMINAL:
                    yield job_pb2.FollowLogsResponse(offset=offset, end=True)
                    return
                await wait_for_change(changed, _RECHECK_SECONDS)

    async def ListMetrics(
        self, request: job_pb2.ListMetricsRequest, context: grpc.aio.ServicerContext
    ) -> job_pb2.ListMetricsResponse:
        job, size = await self._job(job_name(request.parent, "parent")), page_size(request.page_size)
        after = _after(request.page_token)
        rows = await self._db.read(records.metrics_of, job.uid, after, size + 1)
        token = make_token(rows[size - 1].id) if len(rows) > size else ""
        return job_pb2.ListMetricsResponse(points=[mapping.metric(row) for row in rows[:size]], next_page_token=token)

    async def _job(self, name: ids.JobName) -> Row[Any]:
        row = await self._db.read(records.job_named, name)
        if row is None:
            raise not_found(str(name))
        return row

    async def _change(self, given: str, work: Any) -> job_pb2.Job:
        name = job_name(given)

        def locked(tx: Tx) -> Row[Any]:
            job = lifecycle.lock_job_named(tx, name)
            if job is None:
                raise not_found(str(name))
            result: Row[Any] = work(tx, job)
            return result

        try:
            return mapping.job(await self._db.write(locked))
        except IllegalTransition as error:
            finished = " already" if JobState(error.state) in TERMINAL else ""
            message = f"{name} is{finished} {error.state.value}: {error.command.value.lower()} does not apply"
            raise precondition("WRONG_STATE", message) from None


def job_name(given: str, field: str = "name") -> ids.JobName:
    """Parses a job's resource name. Raises ApiError."""
    name = ids.parse_job(given)
    if name is None:
        raise invalid(Violation(field, f"got {given[:200]!r}; allowed: projects/PROJECT/jobs/JOB"))
    return name


def _project(parent: str) -> str:
    project = ids.parse_project(parent)
    if project is None:
        raise invalid(Violation("parent", f"got {parent[:200]!r}; allowed: projects/PROJECT ({ids.ID_RULE})"))
    return project


def _after(token: str) -> int:
    key: Any = read_token(token, int)
    return key[0] if key else 0


def _digest(request: job_pb2.CreateJobRequest) -> str:
    body = job_pb2.CreateJobRequest()
    body.CopyFrom(request)
    body.ClearField("request_id")
    return hashlib.sha256(_canonical(body)).hexdigest()


def _taught(spec: job_pb2.CompressionSpec, teacher: Row[Any] | None) -> job_pb2.CompressionSpec:
    """The spec with its teacher's job, if there is one, by its full name."""
    taught = job_pb2.CompressionSpec()
    taught.CopyFrom(spec)
    if teacher is not None:
        taught.teacher.job = str(ids.JobName(teacher.project, teacher.job_id))
    return taught


def _canonical(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _request(conn: Connection, project: str, request_id: str, body: str) -> Row[Any] | None:
    found = records.job_of_request(conn, project, request_id) if request_id else None
    if found is not None and found.body_sha256 != body:
        message = f"request_id {request_id!r} was used for another job"
        raise ApiError(grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED", message)
    return found
