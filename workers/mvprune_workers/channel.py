"""The supervisor's side of WorkerService."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import grpc

import mvprune
from mvprune.common.channels import open_channel, proxy_variable
from mvprune.v1 import job_pb2, worker_pb2
from mvprune.v1.worker_pb2_grpc import WorkerServiceStub
from mvprune_workers.settings import Tls

MAX_LOG_BYTES = 256 << 10  # in one AppendLogs
MAX_METRIC_POINTS = 1000  # in one ReportMetrics
_MAX_CHUNKS = 16  # in one ReportLostChunks

# The attempt is not ours (any more): superseded, cancelled for good, deleted, or the credential is not honoured.
_NOT_OURS = frozenset(
    {
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)
# The server was reached and will answer the same call in the same way again.
_REJECTED = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# A target such as dns:///NAME:PORT may lead to several servers: calls go to all of them in turn, and to no other while
# one is away.
_SERVICE_CONFIG = json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})
_MESSAGE_BYTES = 64 << 20  # a claim has 200 bytes for each 8 MiB that a client has sent
_OPTIONS = (
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel means a new connection
)


class LeaseLost(Exception):
    """The control plane does not take this process for the attempt's owner."""


class Unreachable(Exception):
    """No answer, or one that may differ next time. Nothing is known about the call."""


class Rejected(Exception):
    """The control plane will never take this request."""


class WorkerClient:
    """Calls of one attempt. Safe in threads; every call has a deadline. All raise LeaseLost, Unreachable, Rejected."""

    def __init__(
        self, target: str, tls: Tls | None, secret: str, attempt: str, fencing_token: int, timeout: float
    ) -> None:
        self._target = target
        self._credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert) if tls else None
        self._metadata = (("authorization", f"Bearer {secret}"),)
        self._lease = worker_pb2.Lease(attempt=attempt, fencing_token=fencing_token)
        self._timeout = timeout
        self._lock = threading.Lock()
        self._connect()

    def __enter__(self) -> WorkerClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def claim(self, runner_id: str, node: str) -> worker_pb2.ClaimAttemptResponse:
        """Takes the lease."""
        request = worker_pb2.ClaimAttemptRequest(
            lease=self._lease, runner_id=runner_id, node=node, version=mvprune.__version__
        )
        response: worker_pb2.ClaimAttemptResponse = self._call("ClaimAttempt", request)
        return response

    def heartbeat(self, progress: job_pb2.Progress, timeout: float | None = None) -> worker_pb2.HeartbeatResponse:
        """Extends the lease."""
        request = worker_pb2.HeartbeatRequest(lease=self._lease, progress=progress)
        response: worker_pb2.HeartbeatResponse = self._call("Heartbeat", request, timeout)
        return response

    def append_logs(self, offset: int, data: bytes) -> int:
        """Sends at most MAX_LOG_BYTES; returns the offset that the server wants next."""
        request = worker_pb2.AppendLogsRequest(lease=self._lease, offset=offset, data=data)
        next_offset: int = self._call("AppendLogs", request).next_offset
        return next_offset

    def report_metrics(self, points: Sequence[job_pb2.MetricPoint]) -> None:
        """Sends at most MAX_METRIC_POINTS."""
        self._call("ReportMetrics", worker_pb2.ReportMetricsRequest(lease=self._lease, points=points))

    def commit_checkpoint(self, step: int, manifest_sha256: str) -> None:
        """Makes an uploaded checkpoint one to resume from."""
        request = worker_pb2.CommitCheckpointRequest(lease=self._lease, step=step, manifest_sha256=manifest_sha256)
        self._call("CommitCheckpoint", request)

    def report_lost_chunks(self, chunks: Sequence[str]) -> None:
        """Names chunks of the attempt's uploads that could not be read as they were sent."""
        for start in range(0, len(chunks), _MAX_CHUNKS):
            some = chunks[start : start + _MAX_CHUNKS]
            self._call("ReportLostChunks", worker_pb2.ReportLostChunksRequest(lease=self._lease, chunks=some))

    def complete(self, outcome: worker_pb2.CompleteAttemptRequest) -> None:
        """Offers an outcome; its lease is filled in here."""
        request = worker_pb2.CompleteAttemptRequest()
        request.CopyFrom(outcome)
        request.lease.CopyFrom(self._lease)
        self._call("CompleteAttempt", request)

    def _connect(self) -> None:
        self._channel = open_channel(
            grpc,
            self._target,
            self._credentials,
            connect_seconds=1.0,
            longest_wait_seconds=5.0,
            options=_OPTIONS,
        )
        self._stub: Any = WorkerServiceStub(self._channel)

    def _reconnect(self, stub: Any) -> None:
        with self._lock:
            if self._stub is stub:
                self._channel.close()
                self._connect()

    def _call(self, method: str, request: Any, timeout: float | None = None) -> Any:
        stub = self._stub
        try:
            return getattr(stub, method)(request, timeout=timeout or self._timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                # A peer whose machine is gone answers nothing, and TCP would keep that connection for 15 minutes.
                self._reconnect(stub)
            text = f"{method}: {code.name}: {details}"
            if code in _NOT_OURS:
                raise LeaseLost(text) from None
            if code in _REJECTED:
                raise Rejected(text) from None
            raise Unreachable(text) from None
        except ValueError as error:  # the channel was closed for another thread's reconnect
            raise Unreachable(f"{method}: {error}") from None


def remedy(target: str) -> str:
    """The remedy if a target cannot be reached, after a semicolon; "" if none is known."""
    if proxy := proxy_variable(target):
        return f"; {proxy} names a proxy for it: if the server is reached without one, add its host to no_proxy"
    return ""
