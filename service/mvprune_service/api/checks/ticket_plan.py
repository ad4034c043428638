"""The runs of a study of lottery tickets: its settings checked, and each of its runs as a single job would be."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from mvprune.common.suggestions import must_be_one_of
from mvprune.data.tasks import TASKS
from mvprune.spec.cells import BadValue
from mvprune.spec.fields import METHODS
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.patterns import BlocksOfFour, gives_density
from mvprune.sweep.tickets.study import AXES, DENSITY, NO_CONTROL, SEED, STEP, TASK, Run, rounds_to
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import Violation, bad
from mvprune_service.api.checks.options import check_numbers
from mvprune_service.api.checks.sweep_checks import Axes, check_policy_of_sweep, place_of_value, read_extension
from mvprune_service.api.checks.sweep_plan import Surroundings, SweepPlan, check_points
from mvprune_service.domain.cells import Origin, size
from mvprune_service.domain.tickets import next_runs
from mvprune_service.sweeps.points import NewPoint, axes_of, cell_of
from mvprune_service.sweeps.tickets import extended, point_of, study_of

_SPEC, _POLICY = "sweep.spec", "sweep.policy"
_OF_TASKS = ("data", "training")  # groups of the parameters that a task may have of its own
_TAKEN = {"model", "model_revision", "task", "dataset", "target_density", "include", "exclude", "pattern"}
_TAKEN |= {"training", "seed"}
_MASK = "locked_mask"
_WHY = {  # why fields of the base must be unset
    "teacher": ", whose runs have no teacher",
    "baseline": ", whose round 0 is the dense model",
    "weight_dtype": ", whose runs store fp32: the next round compares the trained weights",
    "embedding_dtype": ", whose runs store fp32",
    "locked_mask.mask_from": ", whose masks are those of the rounds before",
    "locked_mask.initial_weights": ", whose controls have other weights; choose them with controls",
    "locked_mask.selection": ", whose rounds compare the weights of all matrices together",
}
_LATER = "the-round-before"  # stands for a job that does not exist yet
_AXIS = re.compile(r"sweep\.spec\.axes\[(\d+)\](?:\.values\[(\d+)\])?(.*)")


def plan_study(sweep: sweep_pb2.Sweep, around: Surroundings, max_points: int) -> SweepPlan:
    """Plans a study. Reads models' headers and data files."""
    plan, spec = SweepPlan(), sweep.spec
    axes = Axes(_SPEC, may_have_tasks=True)
    axes.read(spec.axes, spec.points, spec.exclude)
    plan.violations += axes.violations
    plan.violations += _check_base(spec.base)
    plan.violations += _check_question(spec, sweep.policy)
    plan.violations += check_policy_of_sweep(sweep.policy, spec)
    if not axes.violations:
        plan.violations += _check_axes(spec, axes)
        plan.violations += _check_strategy(spec, axes)
    if plan.violations:
        return plan
    study, count = study_of(spec), size(axes.axes)
    runs = study.runs() if count <= max_points else ()
    if (count := max(count, len(runs))) > max_points:
        plan.violations.append(bad(f"{_SPEC}.axes", count, f"at most {max_points:,} runs; use fewer values"))
        return plan
    placed = list(_placed(plan, spec, runs))
    if plan.violations:
        return plan
    plan.checked = [NewPoint(run.cell, point.spec) for run, (point, _) in zip(runs, placed, strict=True)]
    check_points(plan, sweep, placed, around)
    plan.masks.clear()  # of jobs that are created later
    plan.most_jobs = len(runs)
    plan.points = [point_of(spec, run, "") for run in next_runs(runs, {}).runs]
    if len(study.seeds) == 1:
        plan.notes.append("one seed does not tell whether a ticket wins: seed takes several values, such as 0..4")
    if study.transfer is not None and len({*study.transfer.sources, *study.transfer.targets}) == 1:
        plan.notes.append("no mask is trained on another task: transfer_density needs several tasks, got one")
    return plan


def plan_study_extension(
    sweep: sweep_pb2.Sweep, request: sweep_pb2.ExtendSweepRequest, around: Surroundings, max_points: int
) -> SweepPlan:
    """Plans the runs that a request appends: those of further tasks, densities and seeds."""
    known = {run.key for run in study_of(sweep.spec).runs()}
    wanted, plan = sweep_pb2.Sweep(), SweepPlan()
    plan.violations += read_extension(Axes("extend", may_have_tasks=True), request)
    if plan.violations:
        return plan
    wanted.CopyFrom(sweep)
    wanted.spec.CopyFrom(extended(sweep.spec, added_of(request)))
    plan = plan_study(wanted, around, max_points)
    plan.violations = [Violation(_of_request(field, wanted.spec, request), text) for field, text in plan.violations]
    if plan.violations:
        return plan
    runs = study_of(wanted.spec).runs()
    plan.points = [point_of(wanted.spec, run, "") for run in next_runs(runs, {}).runs if run.key not in known]
    plan.checked = [point for run, point in zip(runs, plan.checked, strict=True) if run.key not in known]
    plan.most_jobs = len(plan.checked)
    return plan


def added_of(request: sweep_pb2.ExtendSweepRequest) -> sweep_pb2.SweepSpec:
    """The axes and points of a request."""
    return sweep_pb2.SweepSpec(axes=request.axes, points=request.points)


def _placed(plan: SweepPlan, spec: sweep_pb2.SweepSpec, runs: Sequence[Run]) -> Iterator[tuple[NewPoint, Origin]]:
    """The points of runs, with the values of the sweep that each is made of. Adds a violation for a value that no job
    can have."""
    axes = list(enumerate(axes_of(spec)))
    of_points = {str(cell.get(TASK)): (number, cell) for number, cell in enumerate(map(cell_of, spec.points))}
    for run in runs:
        own = {TASK: run.task, DENSITY: run.density, SEED: run.seed}
        places = {
            axis.parameter: (number, axis.values.index(own[axis.parameter]))
            for number, axis in axes
            if own[axis.parameter] in axis.values
        }
        number, cell = of_points.get(run.task, (None, own))
        origin = Origin(places if number is None else {}, number)
        try:
            point = point_of(spec, run, _LATER if run.mask else "")
        except BadValue as error:
            known = error.parameter in (places if number is None else cell)
            place = place_of_value(error.parameter, origin) if known else f"{_SPEC}.base"
            violation = Violation(place, str(error))
            plan.violations += [violation] if violation not in plan.violations else []
            continue
        yield NewPoint(cell, point.spec), origin


def _check_base(base: job_pb2.CompressionSpec) -> Iterator[Violation]:
    """Violations: options that the recipe sets itself."""
    yield from check_numbers(f"{_SPEC}.base.{_MASK}", base.locked_mask)
    for field, value in base.ListFields():
        if field.name == _MASK:
            yield from _refused(f"{_MASK}.", [one for one in value.ListFields() if one[0].name != "rewind"])
        elif field.name in METHODS:
            rule = f"{_MASK} or unset with tickets, whose rounds prune by magnitude; compare methods in a grid"
            yield bad(f"{_SPEC}.base.method", field.name, rule)
        elif field.name == "pattern" and gives_density(value):
            rule = f"{BlocksOfFour()} or unset with tickets, whose rounds have several densities"
            yield bad(f"{_SPEC}.base.pattern", value, rule)
        elif field.name not in _TAKEN:
            yield from _refused("", [(field, value)])


def _refused(prefix: str, given: Sequence[tuple[Any, Any]]) -> Iterator[Violation]:
    for field, value in given:
        name = prefix + field.name
        if field.message_type is not None:
            shown = value.WhichOneof("source") if "source" in field.message_type.oneofs_by_name else "a value"
        elif field.enum_type is not None:
            shown = field.enum_type.values_by_number[value].name.lower()
        else:
            shown = value
        yield bad(f"{_SPEC}.base.{name}", shown or "a value", f"unset with tickets{_WHY.get(name, '')}")


def _check_question(spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy) -> Iterator[Violation]:
    """Violations: options of sweeps that recommend a point."""
    why = "unset with tickets, which have a criterion of their own and recommend no point"
    for name in ("gates", "objectives"):
        if given := getattr(spec, name):
            yield bad(f"{_SPEC}.{name}[0]", given[0].metric, why)
    if spec.HasField("max_loss"):
        yield bad(f"{_SPEC}.max_loss", f"{spec.max_loss:g}", why)
    if spec.seeds:
        yield bad(f"{_SPEC}.seeds", sweep_pb2.SweepSpec.Seeds.Name(spec.seeds).lower(), why)
    if spec.exclude:
        yield bad(f"{_SPEC}.exclude[0]", "an exclusion", "unset with tickets; leave the values out")
    if policy.own_baselines:
        yield bad(f"{_POLICY}.own_baselines", "true", "unset with tickets, whose round 0 is the dense model")


def _check_axes(spec: sweep_pb2.SweepSpec, axes: Axes) -> Iterator[Violation]:
    """That there are tasks and densities, and nothing else that differs."""
    named = {axis.parameter: axis.values for axis in axes.axes}
    for number, axis in enumerate(axes.axes):
        if axis.parameter not in AXES:
            rule = f"one of {', '.join(AXES)} with tickets; set it for all runs, or for a task with a point"
            yield bad(f"{_SPEC}.axes[{number}].parameter", axis.parameter, rule)
        for index, value in enumerate(axis.values):
            if value is None:
                yield Violation(f"{_SPEC}.axes[{number}].values[{index}]", "must be a value with tickets, got null")
    tasks = [spec.base.task] if spec.base.task and TASK not in named else []
    tasks += [str(task) for task in named.get(TASK, ())]
    for number, cell in enumerate(axes.points):
        place = f"{_SPEC}.points[{number}]"
        if not cell.get(TASK):
            yield Violation(place, "must have a task with tickets, got none; a point is one more task")
        elif cell[TASK] in tasks:
            yield bad(f"{place}.{TASK}", cell[TASK], "a task that the study does not have yet")
        tasks.append(str(cell.get(TASK, "")))
        for name in cell:
            if name != TASK and (name in AXES or PARAMETERS[name].group not in _OF_TASKS):
                yield bad(f"{place}.{name}", cell[name], "set for all runs; a task has data and training of its own")
    for task in tasks:
        if task and task not in TASKS:
            yield Violation(_place_of_task(spec, task), must_be_one_of(TASKS, task[:80]))
    if not tasks:
        yield Violation(f"{_SPEC}.base.task", "must be given with tickets, got none; an axis has several")
    if DENSITY not in named and not spec.base.target_density:
        rule = "must be given with tickets, got none; 1 minus multiples of the step, such as 0.5, 0.3 and 0.1"
        yield Violation(f"{_SPEC}.base.target_density", rule)


def _place_of_task(spec: sweep_pb2.SweepSpec, task: str) -> str:
    """The field that names a task."""
    for number, axis in enumerate(axes_of(spec)):
        if axis.parameter == TASK and task in axis.values:
            return f"{_SPEC}.axes[{number}].values[{axis.values.index(task)}]"
    for number, cell in enumerate(map(cell_of, spec.points)):
        if cell.get(TASK) == task:
            return f"{_SPEC}.points[{number}].{TASK}"
    return f"{_SPEC}.base.{TASK}"


def _check_strategy(spec: sweep_pb2.SweepSpec, axes: Axes) -> Iterator[Violation]:
    strategy, place = spec.tickets, f"{_SPEC}.tickets"
    if wrong := list(check_numbers(place, strategy)):
        yield from wrong
        return
    yield from _check_densities(spec, axes, strategy.step if strategy.HasField("step") else STEP)
    controls = list(strategy.controls)
    if sweep_pb2.TicketStrategy.NONE in controls and len(controls) > 1:
        yield bad(f"{place}.controls", NO_CONTROL, "the only value, or one of the others")
    elif len(set(controls)) < len(controls) or sweep_pb2.TicketStrategy.CONTROL_UNSPECIFIED in controls:
        yield Violation(f"{place}.controls", "must be different controls, got one twice, or none in its place")
    tasks = [str(cell.get(TASK, "")) for cell in axes.points]
    tasks += [str(task) for axis in axes.axes if axis.parameter == TASK for task in axis.values]
    tasks += [spec.base.task] if spec.base.task and not any(axis.parameter == TASK for axis in axes.axes) else []
    for name in ("table_tasks", "transfer_sources", "transfer_targets"):
        given = list(getattr(strategy, name))
        for task in given:
            if task not in tasks:
                yield Violation(f"{place}.{name}", must_be_one_of(tasks, task[:100]))
        if given and name != "table_tasks" and not strategy.HasField("transfer_density"):
            yield bad(f"{place}.{name}", ", ".join(given)[:100], "unset without transfer_density; give that density")


def _check_densities(spec: sweep_pb2.SweepSpec, axes: Axes, step: float) -> Iterator[Violation]:
    """Each must be that of a round."""
    given = [
        (f"{_SPEC}.axes[{number}].values[{index}]", value)
        for number, axis in enumerate(axes.axes)
        if axis.parameter == DENSITY
        for index, value in enumerate(axis.values)
    ]
    if not given and spec.base.target_density:
        given.append((f"{_SPEC}.base.target_density", spec.base.target_density))
    if spec.tickets.HasField("transfer_density"):
        given.append((f"{_SPEC}.tickets.transfer_density", spec.tickets.transfer_density))
    for place, density in given:
        try:
            rounds_to(density if density is not None else math.nan, step)
        except ValueError as error:
            yield Violation(place, str(error))


def _of_request(field: str, spec: sweep_pb2.SweepSpec, request: sweep_pb2.ExtendSweepRequest) -> str:
    """The field of a request that has the value of a field of the extended sweep."""
    if found := _AXIS.fullmatch(field):
        own = spec.axes[int(found[1])]
        for number, axis in enumerate(request.axes):
            if axis.parameter != own.parameter:
                continue
            if found[2] is None:
                return f"axes[{number}]{found[3]}"
            if (value := own.values[int(found[2])]) in axis.values:
                return f"axes[{number}].values[{list(axis.values).index(value)}]{found[3]}"
    before = len(spec.points) - len(request.points)
    if (point := re.fullmatch(r"sweep\.spec\.points\[(\d+)\](.*)", field)) and int(point[1]) >= before:
        return f"points[{int(point[1]) - before}]{point[2]}"
    return field.removeprefix(f"{_SPEC}.")
