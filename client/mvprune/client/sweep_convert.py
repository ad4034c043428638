"""Messages about sweeps to models."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from mvprune.client import convert, models
from mvprune.client import sweep_models as sweeps
from mvprune.spec.gate import gate_of
from mvprune.spec.models import SweepPolicy
from mvprune.spec.parameter import Kind
from mvprune.spec.parameters import PARAMETERS, SETTINGS
from mvprune.v1 import sweep_pb2


def sweep_fields(message: sweep_pb2.Sweep) -> dict[str, Any]:
    """The fields of a `SweepRecord`."""
    chosen, estimate = message.recommendation, message.estimate
    return convert.fields_of(
        sweeps.SweepRecord,
        message,
        spec=_spec(message.spec),
        policy=_policy(message.policy),
        state=convert.state_of(sweeps.SweepState, sweep_pb2.Sweep.State, message.state),
        counts=convert.same_fields(sweeps.SweepCounts, message.counts),
        recommendation=convert.same_fields(sweeps.Recommendation, chosen)
        if message.HasField("recommendation")
        else None,
        cost=convert.same_fields(sweeps.SweepCost, message.cost),
        estimate=convert.same_fields(sweeps.SweepEstimate, estimate) if message.HasField("estimate") else None,
    )


def point(message: sweep_pb2.SweepPoint) -> sweeps.SweepPoint:
    """One cell of a sweep."""
    counted = message.accounting
    return convert.same_fields(
        sweeps.SweepPoint,
        message,
        cell=cell(message.cell),
        state=convert.state_of(sweeps.PointState, sweep_pb2.SweepPoint.State, message.state),
        accounting=convert.same_fields(models.Accounting, counted) if message.HasField("accounting") else None,
        failure=convert.failure_of(message),
        progress=convert.progress_of(message),
    )


def event(message: sweep_pb2.SweepEvent) -> sweeps.SweepEvent:
    """One entry of the audit trail."""
    return convert.same_fields(sweeps.SweepEvent, message)


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
        seeds=seeds or SETTINGS["seed_policy"].default,
        max_loss=message.max_loss if message.HasField("max_loss") else None,
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


def _policy(message: sweep_pb2.SweepPolicy) -> SweepPolicy:
    given = convert.fields_of(SweepPolicy, message)
    words = {name: SETTINGS[name].default for name in given if SETTINGS[name].words and given[name] is None}
    return SweepPolicy(**{**given, **words})
