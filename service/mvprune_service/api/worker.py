"""WorkerService: what supervisors call, on a port of its own."""

from __future__ import annotations

import hmac
import math
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from mvprune.v1 import job_pb2, worker_pb2, worker_pb2_grpc
from mvprune_service import ids
from mvprune_service.api.errors import ApiError, Violation, invalid
from mvprune_service.clock import SECOND
from mvprune_service.db import lifecycle, records
from mvprune_service.db.database import Database, Tx
from mvprune_service.db.lifecycle import Fence
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState
from mvprune_service.secret import attempt_secret

_LOG_CAP = 256 << 10
_POINTS_CAP = 1000
WORKER = "worker"


class WorkerServicer(worker_pb2_grpc.WorkerServiceServicer):
    """Leases, heartbeats, logs, metrics, outcomes."""

    def __init__(self, db: Database, key: bytes, *, lease_seconds: float, heartbeat_seconds: float) -> None:
        self._db = db
        self._key = key
        self._lease_us = int(lease_seconds * SECOND)
        self._lease = _duration(lease_seconds)
        self._interval = _duration(heartbeat_seconds)

    async def ClaimAttempt(
        self, request: worker_pb2.ClaimAttemptRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.ClaimAttemptResponse:
        fence = self._fence(request.lease, context)
        if not 1 <= len(request.runner_id) <= 64:
            raise invalid(Violation("runner_id", "allowed: 1 to 64 characters"))
        job, attempt = await self._db.write(
            lifecycle.claim, fence, runner_id=request.runner_id, node=request.node[:255], lease_us=self._lease_us
        )
        return worker_pb2.ClaimAttemptResponse(
            spec=job_pb2.CompressionSpec.FromString(job.spec),
            lease_ttl=self._lease,
            heartbeat_interval=self._interval,
            log_offset=attempt.log_bytes,
            teacher_manifest_sha256=job.teacher_sha256 or "",
        )

    async def Heartbeat(
        self, request: worker_pb2.HeartbeatRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.HeartbeatResponse:
        fence = self._fence(request.lease, context)
        progress = request.progress.SerializeToString(deterministic=True) if request.HasField("progress") else None
        job = await self._db.write(lifecycle.heartbeat, fence, progress=progress, lease_us=self._lease_us)
        if job.state == JobState.CANCELLING:
            return worker_pb2.HeartbeatResponse(
                directive=worker_pb2.HeartbeatResponse.CANCEL, grace=_duration(job.cancel_grace_us / SECOND)
            )
        return worker_pb2.HeartbeatResponse(directive=worker_pb2.HeartbeatResponse.CONTINUE)

    async def AppendLogs(
        self, request: worker_pb2.AppendLogsRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.AppendLogsResponse:
        fence = self._fence(request.lease, context)
        if len(request.data) > _LOG_CAP or request.offset < 0:
            raise invalid(Violation("data", f"allowed: at most {_LOG_CAP} bytes from an offset of 0 and up"))

        def work(tx: Tx) -> int:
            _, attempt = lifecycle.fenced(tx, fence)
            return records.append_log(tx, attempt, request.offset, request.data)

        return worker_pb2.AppendLogsResponse(next_offset=await self._db.write(work))

    async def ReportMetrics(
        self, request: worker_pb2.ReportMetricsRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.ReportMetricsResponse:
        fence = self._fence(request.lease, context)
        if len(request.points) > _POINTS_CAP:
            raise invalid(Violation("points", f"got {len(request.points)}; allowed: at most {_POINTS_CAP}"))
        points = [
            (point.metric, point.step, point.value, point.time.ToMicroseconds())
            for point in request.points
            if point.metric and len(point.metric) <= 100 and math.isfinite(point.value)
        ]

        def work(tx: Tx) -> None:
            _, attempt = lifecycle.fenced(tx, fence)
            records.add_metrics(tx, attempt, points)

        await self._db.write(work)
        return worker_pb2.ReportMetricsResponse()

    async def CompleteAttempt(
        self, request: worker_pb2.CompleteAttemptRequest, context: grpc.aio.ServicerContext
    ) -> worker_pb2.CompleteAttemptResponse:
        fence = self._fence(request.lease, context)
        outcome = request.WhichOneof("outcome")
        if outcome == "manifest_sha256":
            if ids.parse_artifact(f"projects/p/artifacts/{request.manifest_sha256}") is None:
                raise invalid(Violation("manifest_sha256", "allowed: 64 lower-case hexadecimal digits"))
            await self._db.write(lifecycle.offer, fence, request.manifest_sha256, actor=WORKER)
        elif outcome == "failure":
            if not request.failure.reason:
                raise invalid(Violation("failure.reason", "is missing"))
            reason = FailureReason(job_pb2.Failure.Reason.Name(request.failure.reason))
            message = request.failure.message[:2000]
            await self._db.write(lifecycle.fail_attempt, fence, reason, message, actor=WORKER)
        elif outcome == "cancelled":
            await self._db.write(lifecycle.stopped, fence, actor=WORKER)
        else:
            raise invalid(Violation("outcome", "is missing"))
        return worker_pb2.CompleteAttemptResponse()

    def _fence(self, lease: worker_pb2.Lease, context: grpc.aio.ServicerContext) -> Fence:
        """Who calls, proven by the attempt's own credential."""
        name = ids.parse_attempt(lease.attempt)
        if name is None or name.number is None:
            raise invalid(Violation("lease.attempt", "allowed: projects/PROJECT/jobs/JOB/attempts/NUMBER"))
        expected = f"Bearer {attempt_secret(self._key, str(name), lease.fencing_token)}"
        metadata: Any = context.invocation_metadata() or ()
        given = next((value for key, value in metadata if key == "authorization"), "")
        if not hmac.compare_digest(expected.encode(), str(given).encode()):
            raise ApiError(grpc.StatusCode.UNAUTHENTICATED, "BAD_CREDENTIAL", "the credential is not this attempt's")
        return Fence(name, lease.fencing_token)


def _duration(seconds: float) -> Duration:
    result = Duration()
    result.FromNanoseconds(round(seconds * 1e9))
    return result
