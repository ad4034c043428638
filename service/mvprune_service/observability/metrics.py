"""Prometheus metrics of this process. Labels have few values, all known in advance: never a job or a project."""

from __future__ import annotations

import platform
from functools import cache

from grpc import StatusCode
from prometheus_client import Counter, Gauge, Histogram, Info

import mvprune
import mvprune_migrations

_CALL_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_COMMIT_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)

_requests = Counter("mvprune_rpc_requests", "Calls that ended, streams included", ["method", "code"])
_seconds = Histogram("mvprune_rpc_duration_seconds", "Time of unary calls", ["method"], buckets=_CALL_BUCKETS)
open_streams = Gauge("mvprune_rpc_open_streams", "Streams open now", ["method"])
_attempts = Counter("mvprune_attempts", "Attempts that ended, by state and failure reason", ["state", "reason"])
_jobs = Counter("mvprune_jobs_finished", "Jobs that ended, by task and failure reason", ["task", "state", "reason"])
_steps = Histogram("mvprune_loop_step_duration_seconds", "Time of a loop's step", ["loop"], buckets=_CALL_BUCKETS)
_failures = Counter("mvprune_loop_failures", "Steps of a loop that raised", ["loop"])
_commit_seconds = Histogram(
    "mvprune_database_commit_duration_seconds", "Time of a write transaction with its commit", buckets=_COMMIT_BUCKETS
)
_commit_writes = Histogram(
    "mvprune_database_commit_writes", "Writes that shared a commit", buckets=(1, 2, 4, 8, 16, 32, 64)
)
waiting_writes = Gauge("mvprune_database_waiting_writes", "Writes that wait for the writer thread (SQLite)")
_moved_bytes = Counter("mvprune_log_moved_bytes", "Bytes of logs that were moved from the database to the store")
lease_length = Gauge("mvprune_lease_seconds", "Length of a lease; longer with many workers")
_webhook_attempts = Counter(
    "mvprune_webhook_deliveries", "Attempts to send an event to a webhook, by the state that followed", ["state"]
)
_webhook_seconds = Histogram("mvprune_webhook_duration_seconds", "Time of an attempt", buckets=_CALL_BUCKETS)
descriptor_usage = Gauge("mvprune_descriptor_usage_ratio", "Open file descriptors, as a part of the limit")
connections = Gauge("mvprune_connections", "Connections open now", ["port"])
connections_of_address = Gauge(
    "mvprune_connections_of_one_address", "Connections open now of the address that has the most", ["port"]
)
connections_closed = Counter("mvprune_connections_closed", "Connections closed since there were too many", ["port"])
_build = Info("mvprune_build", "Versions of this server; the value is always 1")
_build.info(
    {"version": mvprune.__version__, "schema": mvprune_migrations.HEAD, "python_version": platform.python_version()}
)


def call_ended(method: str, code: StatusCode, seconds: float | None) -> None:
    """A call is over. `seconds` is None for a stream, which lasts as long as somebody listens."""
    _requests_of(method, code).inc()
    if seconds is not None:
        _seconds_of(method).observe(seconds)


@cache  # looking up a label costs more than counting
def _requests_of(method: str, code: StatusCode) -> Counter:
    return _requests.labels(method, code.name)


@cache
def _seconds_of(method: str) -> Histogram:
    return _seconds.labels(method)


def step_ended(loop: str, seconds: float, *, failed: bool) -> None:
    """A step of a loop is over."""
    _steps.labels(loop).observe(seconds)
    if failed:
        _failures.labels(loop).inc()


def attempt_ended(state: str, reason: str = "") -> None:
    """An attempt is over, and its transaction committed."""
    _attempts.labels(state, reason).inc()


def job_ended(task: str, state: str, reason: str = "") -> None:
    """A job is over, and its transaction committed."""
    _jobs.labels(task, state, reason).inc()


def log_moved(size: int) -> None:
    """A chunk of a log is in the store, and its rows are deleted."""
    _moved_bytes.inc(size)


def webhook_answered(seconds: float) -> None:
    """An attempt to send to a webhook is over."""
    _webhook_seconds.observe(seconds)


def webhook_tried(state: str) -> None:
    """An attempt to send to a webhook is recorded; its delivery is in this state now."""
    _webhook_attempts.labels(state).inc()


def committed(writes: int, seconds: float) -> None:
    """A write transaction is over; `writes` shared it."""
    _commit_writes.observe(writes)
    _commit_seconds.observe(seconds)
