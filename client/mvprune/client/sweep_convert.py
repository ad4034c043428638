"""Messages about sweeps to models."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from mvprune.client import convert, models
from mvprune.client import sweep_models as sweeps
from mvprune.spec.gate import gate_of
from mvprune.spec.parameter import Kind
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import sweep_pb2


def sweep_fields(message: sweep_pb2.Sweep) -> dict[str, Any]:
    """The fields of a `SweepRecord`."""
    chosen = message.recommendation
    return {
        "name": message.name,
        "uid": message.uid,
        "display_name": message.display_name,
        "spec": _spec(message.spec),
        "policy": _policy(message.policy),
        "labels": dict(message.labels),
        "state": convert.state_of(sweeps.SweepState, sweep_pb2.Sweep.State, message.state),
        "state_reason": message.state_reason,
        "counts": convert.same_fields(sweeps.SweepCounts, message.counts),
        "recommendation": convert.same_fields(sweeps.Recommendation, chosen)
        if message.HasField("recommendation")
        else None,
        "cost": convert.same_fields(sweeps.SweepCost, message.cost),
        "estimate": convert.same_fields(sweeps.SweepEstimate, message.estimate)
        if message.HasField("estimate")
        else None,
        "creator": message.creator,
        "create_time": convert.time_of(message, "create_time"),
        "end_time": convert.time_of(message, "end_time"),
        "update_time": convert.time_of(message, "update_time"),
        "etag": message.etag,
        "notes": tuple(message.notes),
    }


def point(message: sweep_pb2.SweepPoint) -> sweeps.SweepPoint:
    """One cell of a sweep."""
    return sweeps.SweepPoint(
        number=message.number,
        cell=cell(message.cell),
        state=convert.state_of(sweeps.PointState, sweep_pb2.SweepPoint.State, message.state),
        state_reason=message.state_reason,
        job=message.job,
        reused=message.reused,
        artifact=message.artifact,
        metrics=dict(message.metrics),
        primary_metric=message.primary_metric,
        accounting=convert.same_fields(models.Accounting, message.accounting)
        if message.HasField("accounting")
        else None,
        total_bytes=message.total_bytes,
        failure=convert.failure_of(message),
        runtime=convert.seconds_of(message, "runtime"),
        gpu_hours=message.gpu_hours,
        progress=convert.progress_of(message.progress) if message.HasField("progress") else None,
        optimal=message.optimal,
        method=message.method,
        target_density=message.target_density,
        seed=message.seed,
        model=message.model,
        task=message.task,
    )


def event(message: sweep_pb2.SweepEvent) -> sweeps.SweepEvent:
    """One entry of the audit trail."""
    return sweeps.SweepEvent(
        sequence=message.sequence,
        time=convert.time_of(message, "time"),
        type=message.type,
        actor=message.actor,
        details=dict(message.details),
    )


def cell(message: Struct) -> dict[str, Any]:
    """Parameter to value; whole numbers are ints."""
    return {name: _value(name, value) for name, value in sorted(MessageToDict(message).items(), key=_position)}


def _position(entry: tuple[str, Any]) -> tuple[int, str]:
    """A struct has no order: parameters come in the contract's."""
    names = list(PARAMETERS)
    return (names.index(entry[0]) if entry[0] in names else len(names), entry[0])


def _value(name: str, value: Any) -> Any:
    known = PARAMETERS.get(name)
    is_whole = known is not None and known.kind is Kind.WHOLE and isinstance(value, float)
    return int(value) if is_whole else value


def _spec(message: sweep_pb2.SweepSpec) -> sweeps.SweepSpec:
    strategy = message.WhichOneof("strategy") or "grid"
    chosen = getattr(message, strategy)
    options = {field.name: convert.option(chosen, field) for field in chosen.DESCRIPTOR.fields}
    seeds = convert.option(message, message.DESCRIPTOR.fields_by_name["seeds"])
    return sweeps.SweepSpec(
        base=convert.spec_of(message.base),
        job_policy=convert.policy_of(message.job_policy),
        axes=tuple(map(_axis, message.axes)),
        points=tuple(map(cell, message.points)),
        exclude=tuple(map(cell, message.exclude)),
        strategy=strategy,
        strategy_options={name: value for name, value in options.items() if value is not None},
        objectives=tuple(map(_objective, message.objectives)),
        gates=tuple(map(gate_of, message.gates)),
        seeds=seeds or "mean",
    )


def _axis(message: sweep_pb2.Axis) -> sweeps.Axis:
    if message.HasField("range"):
        bounds = message.range
        return sweeps.Axis(message.parameter, min=bounds.min, max=bounds.max, log=bounds.log)
    values = (MessageToDict(value) for value in message.values)
    return sweeps.Axis(message.parameter, tuple(_value(message.parameter, value) for value in values))


def _objective(message: sweep_pb2.Objective) -> sweeps.Objective:
    direction = convert.option(message, message.DESCRIPTOR.fields_by_name["direction"])
    return sweeps.Objective(message.metric, direction or "maximize")


def _policy(message: sweep_pb2.SweepPolicy) -> sweeps.SweepPolicy:
    given = convert.same_fields(dict, message)
    return sweeps.SweepPolicy(**{**given, "on_failure": given["on_failure"] or "let_run"})
