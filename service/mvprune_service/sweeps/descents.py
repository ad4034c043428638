"""The points of a descent, as the spec of its sweep has them, and whether a search can be one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mvprune.data.tasks import get_task
from mvprune.spec import cells
from mvprune.spec.cells import DENSITY, METHOD
from mvprune.spec.given import options_of
from mvprune.spec.method_choice import FEW_EVENTS, OBERT
from mvprune.spec.parameter import AUTO, MethodFacts
from mvprune.spec.parameters import METHODS, PARAMETERS
from mvprune.spec.patterns import BlocksOfFour
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.domain import descent
from mvprune_service.domain.descent import DENSE, MEASURED, ROUNDED, Stage
from mvprune_service.domain.teaching import dense_spec
from mvprune_service.sweeps.points import NewPoint, ladder_of

STEPS, _ACTIVATIONS = "max_steps", "activations"
_CHANGES_SHAPES = ("trim_positions", "delta")
LENGTHS = (STEPS, "epochs", "preset")
"""The options of a training that say how long it is."""


def rounds(spec: sweep_pb2.SweepSpec) -> bool:
    """Whether the results of a descent have int8 activations, so that its dense model is measured with them too."""
    return spec.base.activations == job_pb2.Runtime.INT8


def is_descent(spec: sweep_pb2.SweepSpec) -> bool:
    """Whether a sweep is a search by descent."""
    return spec.HasField("search") and spec.search.way == sweep_pb2.SearchStrategy.DESCENT


def why_not(sweep: sweep_pb2.Sweep, combinations: Iterable[Mapping[str, Any]], steps: int) -> str:
    """Why a search cannot be a descent; "" if it can.

    Args:
        combinations: of the axes.
        steps: of a whole run; 0 where only the worker knows them.
    """
    spec, base = sweep.spec, sweep.spec.base
    for method in sorted({_method(spec, cell) for cell in combinations}):
        if not METHODS.get(method, MethodFacts("")).takes_start:
            able = ", ".join(name for name, facts in METHODS.items() if facts.takes_start)
            return f"{method} cannot go on from a pruned model, as {able} can"
    if base.WhichOneof(METHOD) == AUTO:
        for option in options_of(base):
            if (methods := PARAMETERS[option].methods) and OBERT not in methods:
                return f"{OBERT} has no {option}"
    if base.structure:
        return "heads, units and layers are pruned from the whole model"
    if named := next((name for name in _CHANGES_SHAPES if getattr(base, name)), ""):
        return f"no run can go on from an artifact with {named}"
    method = base.WhichOneof(METHOD)
    if method and getattr(base, method).HasField("schedule"):
        return "each of its runs prunes at its start, and the options of a schedule are given"
    if sweep.policy.own_baselines:
        return "all of its runs have one dense model, and own_baselines asks for one in each"
    if base.HasField("baseline"):
        return "its dense model is the baseline of all its runs, and a baseline is given"
    if base.start_from:
        return "each of its runs goes on from the one before, and start_from is given"
    if not (steps or spec.search.HasField("time")):
        return "the number of steps is not known before a worker has read the data; give max_steps, or time"
    return ""


def make_fast(spec: sweep_pb2.SweepSpec) -> str:
    """Sets what the sparse runtime computes fastest, as far as a search for the goal LATENCY leaves it open. Returns
    the options; "" if nothing was set."""
    goal, base = sweep_pb2.SearchStrategy, spec.base
    if spec.search.goal not in (goal.GOAL_UNSPECIFIED, goal.LATENCY):
        return ""
    varied = {axis.parameter for axis in spec.axes} | {name for point in spec.points for name in point.fields}
    options = []
    if not (base.pattern or base.structure or varied & {"pattern", "structure"}):
        base.pattern = str(BlocksOfFour())
        options.append(f"--pattern {base.pattern}")
    if not (base.activations or _ACTIVATIONS in varied):
        base.activations = job_pb2.Runtime.INT8
        options.append("--activations int8")
    return " and ".join(options)


def within_time(spec: sweep_pb2.SweepSpec) -> str:
    """What a descent will do that has a time in place of steps, in words."""
    return (
        f"descent within {spec.search.time.ToSeconds() / 60:g} min: its first point, a run of {descent.MEASURED_STEPS} "
        "steps, measures a step; the number of steps follows, and is in the notes of the sweep then (mvpctl sweep get)"
    )


def with_steps(spec: sweep_pb2.SweepSpec, combinations: Iterable[Mapping[str, Any]], steps: int) -> str:
    """Sets the length of a whole run in steps, in place of epochs. Returns what a descent will take, in words."""
    for length in LENGTHS:
        spec.base.training.ClearField(length)
    spec.base.training.max_steps = steps
    found, densities = list(combinations), len(ladder_of(spec.search))
    methods = sorted({_method(spec, cell) for cell in found})
    descents = len(found) * max(1, spec.search.seeds)
    each = f" in each of {descents} descents" if descents > 1 else ""
    return (
        f"descent with {' and '.join(methods)}: a dense model ({steps:,} steps, none if it is fine-tuned already), "
        f"then at most {densities} densities of {Stage('rung', 1).steps(steps):,} steps, each from the result of the "
        f"one before, until {descent.MISSES} in a row miss, and {steps:,} steps from the dense model for up to "
        f"{descent.MISSES} that miss by little: at most {descent.most_steps(densities, steps):,} steps{each}"
    )


def cell_of_stage(combination: Mapping[str, Any], stage: Stage, whole: int) -> dict[str, Any]:
    """The cell of a stage: its density, and its steps, which tell a whole run from a rung. A whole run has
    `whole` steps."""
    if stage == ROUNDED:
        return {**combination, DENSITY: 1.0, _ACTIVATIONS: "int8"}
    return {**combination, DENSITY: stage.density, STEPS: stage.steps(whole)}


def is_dense_stage(cell: Mapping[str, Any]) -> bool:
    """Whether the cell of a descent's point is that of the measured run, or of the dense model that the others start
    from."""
    return cell.get(DENSITY) == 1 and STEPS in cell


def point_of(
    spec: sweep_pb2.SweepSpec, cell: Mapping[str, Any], stage: Stage, *, dense: str = "", before: str = ""
) -> NewPoint:
    """The point of a stage. Raises BadValue.

    Args:
        dense: the id of the job of the dense model; "" for that job itself.
        before: the id of the job whose result it goes on from.
    """
    built = cells.build(spec.base, {METHOD: _method(spec, cell), **cell})
    job = built.spec
    if stage in (DENSE, MEASURED):
        dense_job = dense_spec(job)
        dense_job.keep_fine_tuned = stage == DENSE  # what is measured is trained
        return NewPoint(cell, dense_job, built.dropped)
    if stage == ROUNDED:
        rounded = dense_spec(job)
        rounded.start_from, rounded.baseline.job, rounded.activations = f"job:{before}", dense, job.activations
        rounded.teacher.none = True
        rounded.weight_dtype = job.weight_dtype or job_pb2.CompressionSpec.INT8
        rounded.embedding_dtype, rounded.trim_vocabulary = job.embedding_dtype, job.trim_vocabulary
        return NewPoint(cell, rounded, built.dropped)
    job.start_from = f"job:{before}"
    _set_schedule(job, stage)
    taught_by = job.teacher.WhichOneof("source")
    if taught_by in (None, "train") and not get_task(job.task).kind.not_distilled:
        job.teacher.job = dense
    elif taught_by != "job":  # the metrics of a teacher's job are the dense ones
        job.baseline.job = dense
    return NewPoint(cell, job, built.dropped)


def _set_schedule(job: job_pb2.CompressionSpec, stage: Stage) -> None:
    """A rung prunes at once, at its start; a whole run as any job of its method."""
    name = str(job.WhichOneof(METHOD))
    method = getattr(job, name)
    if stage.kind == "rung":
        method.schedule.shape, method.schedule.pruning_start = job_pb2.Schedule.ONE_SHOT, 1 / job.training.max_steps
    elif name == OBERT:
        method.schedule.events, method.schedule.first_event = FEW_EVENTS["events"], FEW_EVENTS["first_event"]
    if name == OBERT and not method.HasField("gradients"):
        method.gradients = FEW_EVENTS["gradients"]


def _method(spec: sweep_pb2.SweepSpec, cell: Mapping[str, Any]) -> str:
    method = str(cell.get(METHOD) or spec.base.WhichOneof(METHOD) or AUTO)
    return OBERT if method == AUTO else method
