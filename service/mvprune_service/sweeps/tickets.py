"""The points of a study of lottery tickets, as the spec of its sweep has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mvprune.spec import cells
from mvprune.sweep.tickets.study import (
    AXES,
    DENSE,
    DENSITY,
    RANDOM_MASK,
    SEED,
    TASK,
    TICKET,
    TRANSFER,
    Run,
    Study,
    arranged,
)
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.sweeps.points import NewPoint, axes_of, cell_of

_Control = sweep_pb2.TicketStrategy.Control


def study_of(spec: sweep_pb2.SweepSpec) -> Study:
    """The study of a sweep. Raises ValueError, BadValue, for values that were not checked."""
    strategy = spec.tickets
    controls = [_Control.Name(control).lower() for control in strategy.controls]
    options = {
        "step": strategy.step,
        "controls": controls,
        **{name: list(getattr(strategy, name)) for name in ("table_tasks", "transfer_sources", "transfer_targets")},
        "transfer_density": strategy.transfer_density,
    }
    base = {TASK: spec.base.task, DENSITY: spec.base.target_density, SEED: spec.base.seed}
    axes = {axis.parameter: axis.values for axis in axes_of(spec)}
    return arranged(axes, [cell_of(point) for point in spec.points], base, options)


def point_of(spec: sweep_pb2.SweepSpec, run: Run, mask_job: str) -> NewPoint:
    """The point of a run.

    All runs store fp32, as the next round compares magnitudes of trained weights, and have one learning rate at all
    densities unless the training says otherwise: dense model and ticket are compared under the same schedule.

    Args:
        mask_job: the id of the job that its mask comes from; "" for a run without one.
    """
    own = task_cell(spec, run.task)
    job = cells.build(spec.base, own | {TASK: run.task, SEED: run.seed, DENSITY: run.density}).spec
    rewind = spec.base.locked_mask.rewind
    job.teacher.none = True
    job.weight_dtype = job.embedding_dtype = job_pb2.CompressionSpec.FP32
    if not job.training.HasField("lr_density_exponent"):
        job.training.lr_density_exponent = 0.0
    if run.kind == DENSE:
        job.magnitude.SetInParent()  # keeps all weights
        return NewPoint(run.cell, job)
    job.baseline.none = True
    if run.kind == RANDOM_MASK:
        schedule = job_pb2.Schedule(shape=job_pb2.Schedule.ONE_SHOT, pruning_start=rewind)
        job.random.CopyFrom(job_pb2.RandomPruning(schedule=schedule, selection=job_pb2.GLOBAL))
        return NewPoint(run.cell, job)
    weights = "MODEL" if run.kind in (TICKET, TRANSFER) else run.kind.upper()
    mask = job_pb2.LockedMask(
        mask_from=job_pb2.Mask(job=mask_job),
        initial_weights=weights,
        selection=job_pb2.GLOBAL,
    )
    if rewind:
        mask.rewind = rewind
    job.locked_mask.CopyFrom(mask)
    return NewPoint(run.cell, job)


def task_cell(spec: sweep_pb2.SweepSpec, task: str) -> dict[str, Any]:
    """The values of one task: those of its point, without its name."""
    own: Mapping[str, Any] = next((cell for cell in map(cell_of, spec.points) if cell.get(TASK) == task), {})
    return {name: value for name, value in own.items() if name not in AXES}


def extended(spec: sweep_pb2.SweepSpec, added: sweep_pb2.SweepSpec) -> sweep_pb2.SweepSpec:
    """The spec of a study with further values of its axes, and with further tasks."""
    result = sweep_pb2.SweepSpec()
    result.CopyFrom(spec)
    base = {TASK: spec.base.task, DENSITY: spec.base.target_density, SEED: spec.base.seed}
    for axis in added.axes:
        own = next((one for one in result.axes if one.parameter == axis.parameter), None)
        if own is None:
            own = result.axes.add(parameter=axis.parameter)
            if (value := base.get(axis.parameter)) or axis.parameter == SEED:
                _append(own, value)
        known = [value.SerializeToString() for value in own.values]
        own.values.extend(value for value in axis.values if value.SerializeToString() not in known)
    known = [point.SerializeToString(deterministic=True) for point in result.points]
    result.points.extend(one for one in added.points if one.SerializeToString(deterministic=True) not in known)
    return result


def _append(axis: sweep_pb2.Axis, value: Any) -> None:
    if isinstance(value, str):
        axis.values.add(string_value=value)
    else:
        axis.values.add(number_value=value)
