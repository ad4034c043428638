"""WorkerService: what supervisors call, on a port of its own."""

from __future__ import annotations

import hmac
import math
import re

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc.aio import ServicerContext as Context
from sqlalchemy import Connection

import mvprune
from mvprune.spec.gate import OF_LATENCY
from mvprune.v1 import job_pb2, worker_pb2, worker_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError, Violation, bad, invalid, precondition
from mvprune_service.api.access.inputs import clean
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.api.access.peers import KnownAddresses, given_with
from mvprune_service.api.beats import Beats
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.api.checks.policies import with_defaults
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.pace import Pace
from mvprune_service.db import attempt_logs, leases, records, upload_uses, uploads
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.heartbeats import Beat
from mvprune_service.db.leases import WORKER, Fence
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.db.tables.uploads import ChunkRow
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.leases import version_problem
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.retries import Failure, Kill
from mvprune_service.secret import attempt_secret
from mvprune_service.stores.layout import upload_key

_LOG_CAP = 256 << 10
_LOG_RATE, _LOG_BURST = 1 << 20, 8 << 20  # bytes: a second, and at once
_POINTS_CAP = 1000
_COUNT_CAP = 10**12  # of steps and of bytes
_MESSAGE_CAP = 2000  # characters that are kept
_LAST_SIGNAL = 64
_CHUNKS_CAP = 16  # each is read from the store
_SHA256 = re.compile(r"[0-9a-f]{64}")


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """Leases, heartbeats, logs, metrics, checkpoints, lost uploads, outcomes.

    Args:
        known: gets the addresses of workers with valid credentials.
    """

    def __init__(
        self,
        db: Database,
        key: bytes,
        lost_chunks: LostChunks,
        *,
        pace: Pace,
        clock: Clock = system_clock,
        known: KnownAddresses | None = None,
    ) -> None:
        self._db = db
        self._addresses = known or KnownAddresses(clock)
        self._key = key
        self._lost_chunks = lost_chunks
        self._pace = pace
        self._beats = Beats(db, pace)
        self._version = mvprune.__version__
        self._log_rate = RateLimiter(_LOG_RATE, _LOG_BURST, clock, unit="bytes")

    async def ClaimAttempt(
        self, request: worker_pb2.ClaimAttemptRequest, context: Context
    ) -> worker_pb2.ClaimAttemptResponse:
        fence = self._fence(request.lease, context)
        _check_length("runner_id", request.runner_id, 1, 64)
        _check_length("node", request.node, 0, 255)
        _check_length("version", request.version, 0, 64)
        if problem := version_problem(request.version, self._version, request.node):
            await self._db.write(leases.turn_away, fence, Failure(FailureReason.WRONG_VERSION, problem))
            raise precondition("WRONG_VERSION", problem)
        job, attempt = await self._db.write(
            leases.claim, fence, runner_id=request.runner_id, node=request.node, lease_us=self._pace.lease_us
        )
        checkpoints = await self._db.read(leases.checkpoints_of, job.uid)
        inputs = await self._db.read(_inputs, job)
        policy = with_defaults(job_pb2.ExecutionPolicy.FromString(job.policy), None)
        return worker_pb2.ClaimAttemptResponse(
            spec=job_pb2.CompressionSpec.FromString(job.spec),
            lease_ttl=_duration(self._pace.lease_seconds),
            heartbeat_interval=_duration(self._pace.interval_seconds),
            log_offset=attempt.log_bytes,
            teacher_manifest_sha256=job.teacher_sha256 or "",
            checkpoints=[
                worker_pb2.Checkpoint(attempt_uid=row.attempt_uid, step=row.step, manifest_sha256=row.manifest_sha256)
                for row in checkpoints
            ],
            checkpoint_interval=policy.checkpoint_interval,
            accumulation_factor=job.accumulation_factor,
            measure_latency=policy.measure_latency or any(gate.metric in OF_LATENCY for gate in policy.gates),
            uploads=inputs,
        )

    async def Heartbeat(self, request: worker_pb2.HeartbeatRequest, context: Context) -> worker_pb2.HeartbeatResponse:
        fence = self._fence(request.lease, context)
        _check_length("progress.phase", request.progress.phase, 0, 64)
        _check_count("progress.step", request.progress.step)
        _check_count("progress.total_steps", request.progress.total_steps)
        progress = request.progress.SerializeToString(deterministic=True) if request.HasField("progress") else None
        job = await self._beats.write(Beat(fence, progress))
        interval = _duration(self._pace.interval_seconds)
        if job.state == JobState.CANCELLING:
            grace = _duration((job.cancel_grace_us or 0) / SECOND)
            return worker_pb2.HeartbeatResponse(
                directive=worker_pb2.HeartbeatResponse.CANCEL, grace=grace, interval=interval
            )
        return worker_pb2.HeartbeatResponse(directive=worker_pb2.HeartbeatResponse.CONTINUE, interval=interval)

    async def AppendLogs(
        self, request: worker_pb2.AppendLogsRequest, context: Context
    ) -> worker_pb2.AppendLogsResponse:
        fence = self._fence(request.lease, context)
        _check_count("offset", request.offset)
        if len(request.data) > _LOG_CAP:
            raise invalid(Violation("data", f"must be at most {_LOG_CAP} bytes, got {len(request.data)}"))
        self._log_rate.take(str(fence.attempt), len(request.data))

        def work(tx: Tx) -> int:
            _, attempt = leases.fenced(tx, fence)
            return attempt_logs.append_log(tx, attempt, request.offset, request.data)

        return worker_pb2.AppendLogsResponse(next_offset=await self._db.write(work))

    async def ReportMetrics(
        self, request: worker_pb2.ReportMetricsRequest, context: Context
    ) -> worker_pb2.ReportMetricsResponse:
        fence = self._fence(request.lease, context)
        if len(request.points) > _POINTS_CAP:
            raise invalid(Violation("points", f"must be at most {_POINTS_CAP} points, got {len(request.points)}"))
        for index, point in enumerate(request.points):
            _check_length(f"points[{index}].metric", point.metric, 1, 100)
            _check_count(f"points[{index}].step", point.step)
        points = [
            (point.metric, point.step, point.value, point.time.ToMicroseconds())
            for point in request.points
            if math.isfinite(point.value)
        ]

        def work(tx: Tx) -> None:
            _, attempt = leases.fenced(tx, fence)
            records.add_metrics(tx, attempt, points)

        await self._db.write(work)
        return worker_pb2.ReportMetricsResponse()

    async def CommitCheckpoint(
        self, request: worker_pb2.CommitCheckpointRequest, context: Context
    ) -> worker_pb2.CommitCheckpointResponse:
        fence = self._fence(request.lease, context)
        _check_count("step", request.step)
        _check_digest(request.manifest_sha256)
        await self._db.write(
            leases.commit_checkpoint, fence, step=request.step, manifest_sha256=request.manifest_sha256
        )
        return worker_pb2.CommitCheckpointResponse()

    async def ReportLostChunks(
        self, request: worker_pb2.ReportLostChunksRequest, context: Context
    ) -> worker_pb2.ReportLostChunksResponse:
        fence = self._fence(request.lease, context)
        if not 1 <= len(request.chunks) <= _CHUNKS_CAP:
            raise invalid(bad("chunks", len(request.chunks), f"1 to {_CHUNKS_CAP} chunks"))
        job, _ = await self._db.write(leases.fenced, fence)
        known = await self._db.read(_chunks, job)
        if unknown := [sha256 for sha256 in request.chunks if sha256 not in known]:
            raise invalid(bad("chunks", unknown[0], "the SHA-256 of a chunk of the job's uploads"))
        suspects = {sha256: known[sha256] for sha256 in request.chunks}.values()
        missing = await self._lost_chunks.note(job.project, suspects, by_content=True)
        return worker_pb2.ReportLostChunksResponse(missing=missing)

    async def CompleteAttempt(
        self, request: worker_pb2.CompleteAttemptRequest, context: Context
    ) -> worker_pb2.CompleteAttemptResponse:
        fence = self._fence(request.lease, context)
        outcome = request.WhichOneof("outcome")
        if outcome == "manifest_sha256":
            _check_digest(request.manifest_sha256)
            await self._db.write(leases.offer, fence, request.manifest_sha256, actor=WORKER)
        elif outcome == "failure":
            if not request.failure.reason:
                raise invalid(Violation("failure.reason", "must be a reason, got none"))
            reason = FailureReason(job_pb2.Failure.Reason.Name(request.failure.reason))
            message = clean(request.failure.message, _MESSAGE_CAP)
            kill = _kill(request.killed) if request.HasField("killed") else None
            await self._db.write(leases.fail_attempt, fence, Failure(reason, message, kill=kill), actor=WORKER)
        elif outcome == "cancelled":
            await self._db.write(leases.stopped, fence, actor=WORKER)
        else:
            raise invalid(Violation("outcome", "must be manifest_sha256, failure or cancelled, got none"))
        return worker_pb2.CompleteAttemptResponse()

    def _fence(self, lease: worker_pb2.Lease, context: Context) -> Fence:
        """The attempt and the token of the caller, which must have the credential of the attempt."""
        name = ids.parse_attempt(lease.attempt)
        if name is None or name.number is None:
            raise invalid(bad("lease.attempt", lease.attempt, "projects/PROJECT/jobs/JOB/attempts/NUMBER"))
        expected = f"Bearer {attempt_secret(self._key, str(name), lease.fencing_token)}"
        given = given_with(context, "authorization") or ""
        if not hmac.compare_digest(expected.encode(), given.encode()):
            raise ApiError(grpc.StatusCode.UNAUTHENTICATED, "BAD_CREDENTIAL", "the credential is not this attempt's")
        self._addresses.note(context.peer())
        return Fence(name, lease.fencing_token)


def _inputs(conn: Connection, job: JobRow) -> list[worker_pb2.UploadedInput]:
    """The uploads that a job reads, and where their chunks are."""
    found = []
    for reference, row in upload_uses.inputs_of(conn, job).items():
        one = worker_pb2.UploadedInput(reference=reference)
        for file in row.described():
            one.files.add(path=file.path, size_bytes=file.size_bytes, chunks=file.chunks)
        chunks = uploads.chunks_of(conn, row.name)
        one.keys.update({sha256: upload_key(chunk.uid) for sha256, chunk in chunks.items()})
        found.append(one)
    return found


def _chunks(conn: Connection, job: JobRow) -> dict[str, ChunkRow]:
    """The chunks of the uploads that a job reads, by their SHA-256."""
    found: dict[str, ChunkRow] = {}
    for row in upload_uses.inputs_of(conn, job).values():
        found |= uploads.chunks_of(conn, row.name)
    return found


def _kill(killed: worker_pb2.CompleteAttemptRequest.Killed) -> Kill:
    if not 1 <= killed.signal <= _LAST_SIGNAL:
        raise invalid(bad("killed.signal", killed.signal, f"1 to {_LAST_SIGNAL}"))
    _check_length("killed.phase", killed.phase, 0, 64)
    _check_count("killed.step", killed.step)
    return Kill(killed.signal, killed.phase, killed.step)


def _check_length(field: str, text: str, least: int, most: int) -> None:
    if not least <= len(text) <= most:
        raise invalid(Violation(field, f"must be {least} to {most} characters, got {len(text)}"))


def _check_count(field: str, number: int) -> None:
    if not 0 <= number <= _COUNT_CAP:
        raise invalid(bad(field, number, f"0 to {_COUNT_CAP}"))


def _check_digest(sha256: str) -> None:
    if not _SHA256.fullmatch(sha256):
        raise invalid(bad("manifest_sha256", sha256, "64 lower-case hexadecimal digits"))


def _duration(seconds: float) -> Duration:
    result = Duration()
    result.FromNanoseconds(round(seconds * 1e9))
    return result
