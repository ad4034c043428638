"""Checks of how a job is to be run, and the defaults of what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mvprune.data.tasks import LOSSES, Task
from mvprune.spec.vocabulary import Bound
from mvprune.v1 import job_pb2
from mvprune_service.api.errors import Violation
from mvprune_service.api.options import bad, check_numbers
from mvprune_service.domain.gates import OF_THE_ARTIFACT

MAX_ATTEMPTS = 3
START_TIMEOUT_SECONDS = 900
CHECKPOINT_SECONDS = 600
PRIORITY = 100  # at most, either way
GATES = 32  # at most
_MINUTE, _DAY = 60, 86_400
_LEAST_SHARE, _MOST_GPUS, _MOST_CPUS = 1e-4, 1024, 4096  # Ray divides nothing further
_LEAST_MEMORY, _MOST_MEMORY = 64 << 20, 1 << 50  # bytes; less than the least was meant in another unit
_DURATIONS = {
    "start_timeout": (1, _DAY, "1 s to 1 day"),
    "max_runtime": (1, 365 * _DAY, "1 s to 365 days"),
    "max_queue_time": (1, 365 * _DAY, "1 s to 365 days"),
    "retention": (_MINUTE, 3650 * _DAY, "1 min to 3650 days"),
    "checkpoint_interval": (1, _DAY, "1 s to 1 day"),
}


def check_policy(policy: job_pb2.ExecutionPolicy) -> Iterator[Violation]:
    """What is wrong with a job's policy."""
    if policy.HasField("resources"):
        yield from _check_resources(policy.resources)
    if not 0 <= policy.max_attempts <= 100:
        yield bad("job.policy.max_attempts", policy.max_attempts, f"1 to 100, or 0 for {MAX_ATTEMPTS}")
    if not -PRIORITY <= policy.priority <= PRIORITY:
        yield bad("job.policy.priority", policy.priority, f"-{PRIORITY} to {PRIORITY}")
    for name, (low, high, allowed) in _DURATIONS.items():
        if not policy.HasField(name):
            continue
        given = getattr(policy, name)
        if not low <= given.seconds + given.nanos / 1e9 <= high:
            yield bad(f"job.policy.{name}", f"{given.seconds}s", allowed)


def _check_resources(asked: job_pb2.Resources) -> Iterator[Violation]:
    field, gpus, memory = "job.policy.resources", asked.gpus, asked.memory_bytes
    yield from check_numbers(field, asked, {"cpus": Bound(_LEAST_SHARE, _MOST_CPUS)})
    if not (gpus == 0 or _LEAST_SHARE <= gpus <= 1 or (1 < gpus <= _MOST_GPUS and gpus.is_integer())):
        yield bad(f"{field}.gpus", gpus, f"0, a share of one from {_LEAST_SHARE}, or a whole number up to {_MOST_GPUS}")
    if asked.HasField("memory_bytes") and not _LEAST_MEMORY <= memory <= _MOST_MEMORY:
        allowed = f"{_LEAST_MEMORY} to {_MOST_MEMORY} bytes, which is 64 MiB to 1 PiB"
        yield bad(f"{field}.memory_bytes", memory, allowed)


def check_gates(job: job_pb2.Job, task: Task | None) -> Iterator[Violation]:
    """What is wrong with a job's gates; names of metrics are looked at where the task is known."""
    gates, field = job.policy.gates, "job.policy.gates"
    if len(gates) > GATES:
        yield bad(field, f"{len(gates)} gates", f"at most {GATES}")
        return
    seen: set[tuple[str, str | None]] = set()
    for index, gate in enumerate(gates):
        side = gate.WhichOneof("bound")
        if task is not None:
            yield from _check_metric(f"{field}[{index}].metric", gate.metric, task, job.spec.target_density)
        if side is None:
            yield bad(f"{field}[{index}]", "no bound", "min or max")
        elif not math.isfinite(bound := getattr(gate, side)):
            yield bad(f"{field}[{index}].{side}", bound, "a finite number")
        elif _is_fraction(gate.metric) and not -1 <= bound <= 1:
            yield bad(f"{field}[{index}].{side}", f"{bound:g}", "from -1 to 1: a fraction, not percent")
        if (gate.metric, side) in seen:
            yield bad(f"{field}[{index}].metric", gate.metric, f"each metric with one {side}")
        seen.add((gate.metric, side))


def _check_metric(field: str, metric: str, task: Task, target_density: float) -> Iterator[Violation]:
    kind, _, name = metric.partition("/")
    kinds = ("eval", "delta", "dense") if target_density < 1 else ("eval",)  # else there is no dense model beside it
    if metric not in OF_THE_ARTIFACT and (kind not in kinds or name not in task.metrics):
        yield bad(field, metric, f"{', '.join(OF_THE_ARTIFACT)}; {'/, '.join(kinds)}/ with {', '.join(task.metrics)}")


def _is_fraction(metric: str) -> bool:
    return metric == "density" or ("/" in metric and metric.partition("/")[2] not in LOSSES)


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
