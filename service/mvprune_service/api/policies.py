"""Checks of how a job is to be run, and the defaults of what it leaves open."""

from __future__ import annotations

from collections.abc import Iterator

from mvprune.v1 import job_pb2
from mvprune_service.api.errors import Violation
from mvprune_service.api.options import Bound, bad, check_numbers

MAX_ATTEMPTS = 3
START_TIMEOUT_SECONDS = 900
CHECKPOINT_SECONDS = 600
PRIORITY = 100  # at most, either way
_MINUTE, _DAY = 60, 86_400
_RESOURCES = {"gpus": Bound(0, 1024), "cpus": Bound(0, 4096, open_low=True), "memory_bytes": Bound(1, 1 << 50)}
_DURATIONS = {
    "start_timeout": (1, _DAY, "1 s to 1 day"),
    "max_runtime": (1, 365 * _DAY, "1 s to 365 days"),
    "max_queue_time": (1, 365 * _DAY, "1 s to 365 days"),
    "retention": (_MINUTE, 3650 * _DAY, "1 min to 3650 days"),
    "checkpoint_interval": (1, _DAY, "1 s to 1 day"),
}


def check_policy(policy: job_pb2.ExecutionPolicy) -> Iterator[Violation]:
    """What is wrong with a job's policy."""
    yield from check_numbers("job.policy.resources", policy.resources, _RESOURCES)
    if not 0 <= policy.max_attempts <= 100:
        yield bad("job.policy.max_attempts", policy.max_attempts, f"1 to 100, or 0 for {MAX_ATTEMPTS}")
    if not -PRIORITY <= policy.priority <= PRIORITY:
        yield bad("job.policy.priority", policy.priority, f"-{PRIORITY} to {PRIORITY}")
    for name, (low, high, allowed) in _DURATIONS.items():
        given = getattr(policy, name)
        if policy.HasField(name) and not low <= given.seconds + given.nanos / 1e9 <= high:
            yield bad(f"job.policy.{name}", f"{given.seconds}s", allowed)


def with_defaults(policy: job_pb2.ExecutionPolicy, retention_seconds: int | None) -> job_pb2.ExecutionPolicy:
    """The policy with its defaults written out."""
    filled = job_pb2.ExecutionPolicy()
    filled.CopyFrom(policy)
    filled.max_attempts = filled.max_attempts or MAX_ATTEMPTS
    if not filled.HasField("start_timeout"):
        filled.start_timeout.seconds = START_TIMEOUT_SECONDS
    if not filled.HasField("checkpoint_interval"):
        filled.checkpoint_interval.seconds = CHECKPOINT_SECONDS
    if not filled.HasField("retention") and retention_seconds is not None:
        filled.retention.seconds = retention_seconds
    return filled
