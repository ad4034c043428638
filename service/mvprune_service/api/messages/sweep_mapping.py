"""Converts rows of sweeps to messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct

from mvprune.v1 import artifact_pb2, job_pb2, sweep_pb2
from mvprune_service.api.messages.mapping import timestamp
from mvprune_service.db.sweep_records import Usage
from mvprune_service.db.tables.sweeps import PointRow, ShownPointRow, SweepEventRow, SweepRow
from mvprune_service.domain.sweeping import PointState
from mvprune_service.ids import JobName

_HOUR_US = 3_600_000_000
_COUNTED = ("pending", "queued", "running", "succeeded", "failed", "cancelled", "skipped", "deleted")


def sweep(row: SweepRow, counts: Mapping[str, int], usage: tuple[Usage, Usage, int]) -> sweep_pb2.Sweep:
    """A row of sweeps with what follows from its points."""
    total, baselines, saved_us = usage
    result = sweep_pb2.Sweep(
        name=str(row.name),
        uid=row.uid,
        display_name=row.display_name,
        labels=row.labels,
        state=row.state.value,
        state_reason=row.state_reason,
        counts=counts_message(counts),
        cost=sweep_pb2.SweepCost(
            runtime=duration(total.ran_us),
            gpu_hours=total.gpu_us / _HOUR_US,
            baseline_runtime=duration(baselines.ran_us),
            saved_runtime=duration(saved_us),
        ),
        creator=row.creator,
        create_time=timestamp(row.create_us),
        update_time=timestamp(row.update_us),
        etag=str(row.version),
        notes=row.notes,
    )
    result.spec.ParseFromString(row.spec)
    result.policy.ParseFromString(row.policy)
    if row.recommendation is not None:
        result.recommendation.ParseFromString(row.recommendation)
    if row.end_us is not None:
        result.end_time.CopyFrom(timestamp(row.end_us))
    return result


def counts_message(counts: Mapping[str, int]) -> sweep_pb2.SweepCounts:
    """Points by the names of their states."""
    by_state = {name: counts.get(name.upper(), 0) for name in _COUNTED}
    rest = {"reused": counts.get("reused", 0), "baselines": counts.get("baselines", 0)}
    return sweep_pb2.SweepCounts(total=sum(by_state.values()), **by_state, **rest)


def point(row: ShownPointRow, sweep_row: SweepRow) -> sweep_pb2.SweepPoint:
    """A point with its job and its result."""
    own = row.point
    spec = job_pb2.CompressionSpec.FromString(row.spec)
    result = sweep_pb2.SweepPoint(
        number=own.number,
        cell=struct(own.cell),
        state=own.state.value,
        state_reason=_reason(own),
        job=str(JobName(sweep_row.project, own.job_id)) if own.job_id else "",
        reused=own.reused,
        optimal=own.number in sweep_row.front,
        method=spec.WhichOneof("method") or "",
        target_density=spec.target_density,
        seed=spec.seed,
        model=spec.model,
        task=spec.task,
    )
    if own.result is not None:
        _set_result(result, own.result)
    if own.state is PointState.RUNNING and row.progress is not None:
        result.progress.ParseFromString(row.progress)
    if own.state is PointState.FAILED and row.failure_reason:
        result.failure.CopyFrom(job_pb2.Failure(reason=row.failure_reason, message=row.failure_message or ""))
    return result


def event(row: SweepEventRow) -> sweep_pb2.SweepEvent:
    """A row of sweep_events."""
    return sweep_pb2.SweepEvent(
        sequence=row.sequence, time=timestamp(row.time_us), type=row.type, actor=row.actor, details=row.details
    )


def struct(cell: Mapping[str, Any]) -> Struct:
    """A cell as a message."""
    message = Struct()
    message.update(dict(cell))
    return message


def duration(microseconds: int) -> Duration:
    """A protobuf duration."""
    result = Duration()
    result.FromMicroseconds(microseconds)
    return result


def _reason(own: PointRow) -> str:
    if own.state is PointState.SKIPPED:
        return own.skip_reason
    return own.job_reason or "" if own.job_uid is not None else ""


def _set_result(message: sweep_pb2.SweepPoint, result: Mapping[str, Any]) -> None:
    message.artifact = result["artifact"]
    message.metrics.update(result["metrics"])
    message.primary_metric = result["primary_metric"]
    message.total_bytes = round(result["total_bytes"])
    message.runtime.CopyFrom(duration(result["ran_us"]))
    message.gpu_hours = result["gpu_us"] / _HOUR_US
    if result["accounting"]:
        message.accounting.CopyFrom(artifact_pb2.Accounting(**result["accounting"]))
