"""Checks of how a job is to be run, and the defaults of what it leaves open."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mvprune.common.metrics import ABOVE_CONSTANT
from mvprune.common.suggestions import did_you_mean
from mvprune.data.tasks import LOSSES, Task
from mvprune.spec.annotations import annotation, default_of
from mvprune.spec.fields import is_duration
from mvprune.spec.gate import OF_THE_ARTIFACT
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation, bad
from mvprune_service.api.checks.options import check_numbers
from mvprune_service.domain.placement import ranks_of, resolve
from mvprune_service.executors.base import Capacity

_FIELDS = job_pb2.ExecutionPolicy.DESCRIPTOR.fields_by_name
_MAX_ATTEMPTS = int(default_of(_FIELDS["max_attempts"]))
_DEFAULT_TIMES = {
    name: int(default_of(field)) for name, field in _FIELDS.items() if is_duration(field) and annotation(field).default
}
_LEAST_SHARE = 1e-4  # of a GPU: Ray divides nothing further


def check_policy(policy: job_pb2.ExecutionPolicy) -> Iterator[Violation]:
    """The violations of a job's policy."""
    if policy.HasField("resources"):
        yield from check_numbers("job.policy.resources", policy.resources)
        yield from _check_gpus("job.policy.resources.gpus", policy.resources)
    yield from check_numbers("job.policy", policy)


def _check_gpus(field: str, resources: job_pb2.Resources) -> Iterator[Violation]:
    gpus, workers = resources.gpus, resources.workers
    if 0 < gpus < 1 and workers > 1:
        yield bad(field, gpus, f"0 or a whole number with {workers} workers; each of them needs GPUs of its own")
    elif 0 < gpus < _LEAST_SHARE or (gpus > 1 and not gpus.is_integer()):
        yield bad(field, gpus, f"0, a share of one from {_LEAST_SHARE}, or a whole number")


def check_ranks(resources: job_pb2.Resources, batch_size: int) -> Iterator[Violation]:
    """Refuses more processes than a batch has examples."""
    ranks = ranks_of(resources)
    if ranks > batch_size > 0:
        name = "workers" if resources.workers > 1 else "gpus"
        rule = f"so many that each process gets an example of a batch, {batch_size} at most; take a larger batch_size"
        yield bad(f"job.policy.resources.{name}", f"{ranks} processes", rule)


def notes_on_ranks(resources: job_pb2.Resources) -> Iterator[str]:
    """How many processes train together, where there are several."""
    ranks = ranks_of(resources)
    if ranks > 1:
        yield f"{ranks} processes train together, {'one on each GPU' if resources.gpus else 'on CPUs'}"


def notes_on_cpus(resources: job_pb2.Resources, capacity: Capacity) -> Iterator[str]:
    """That processes share CPUs, where the job leaves their number open and no node has one for each."""
    ranks, cpus = ranks_of(resources), resolve(resources, capacity).cpus
    if ranks > cpus > 0 and not resources.HasField("cpus"):
        yield f"{ranks} processes share {cpus:g} CPUs, as no node has more; fewer workers are as fast"


def check_gates(job: job_pb2.Job, task: Task | None) -> Iterator[Violation]:
    """The violations of a job's gates; names of metrics are looked at where the task is known."""
    gates, field = job.policy.gates, "job.policy.gates"
    seen: set[tuple[str, str | None]] = set()
    for index, gate in enumerate(gates):
        side = gate.WhichOneof("bound")
        if task is not None:
            yield from _check_metric(f"{field}[{index}].metric", gate.metric, task, job.spec)
        if side is None:
            yield bad(f"{field}[{index}]", "neither", "bounded by min or max")
        elif not math.isfinite(bound := getattr(gate, side)):
            yield bad(f"{field}[{index}].{side}", bound, "a finite number")
        elif _is_fraction(gate.metric, task) and not -1 <= bound <= 1:
            yield bad(f"{field}[{index}].{side}", bound, "from -1 to 1; it is a fraction, not percent")
        if (gate.metric, side) in seen:
            yield bad(f"{field}[{index}].metric", gate.metric, f"given once with {side}")
        seen.add((gate.metric, side))


def _check_metric(field: str, metric: str, task: Task, spec: job_pb2.CompressionSpec) -> Iterator[Violation]:
    kind, _, name = metric.partition("/")
    has_baseline = spec.target_density < 1 and not spec.baseline.none
    kinds = ("eval", "delta", "dense") if has_baseline else ("eval",)
    if metric not in OF_THE_ARTIFACT and (kind not in kinds or name not in task.metrics):
        names = f"{'/, '.join(kinds)}/ with {', '.join(task.metrics)}"
        known = [*OF_THE_ARTIFACT, *(f"{one}/{other}" for one in kinds for other in task.metrics)]
        # Clients write eval/ before a name that they do not know.
        hint = did_you_mean(metric, known) or did_you_mean(name, OF_THE_ARTIFACT)
        yield bad(field, metric, f"one of {', '.join(OF_THE_ARTIFACT)}, or {names}{hint}")


def _is_fraction(metric: str, task: Task | None) -> bool:
    if metric == ABOVE_CONSTANT:
        return task is not None and task.primary_metric not in LOSSES
    return metric == "density" or ("/" in metric and metric.partition("/")[2] not in LOSSES)


def with_defaults(policy: job_pb2.ExecutionPolicy, retention_seconds: int | None) -> job_pb2.ExecutionPolicy:
    """The policy with its defaults written out."""
    filled = job_pb2.ExecutionPolicy()
    filled.CopyFrom(policy)
    for name, default in _DEFAULT_TIMES.items():
        if not filled.HasField(name):
            getattr(filled, name).seconds = default
    filled.max_attempts = filled.max_attempts or _MAX_ATTEMPTS
    if not filled.HasField("retention") and retention_seconds is not None:
        filled.retention.seconds = retention_seconds
    return filled
