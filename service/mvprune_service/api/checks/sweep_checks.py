"""Checks of a sweep: its own fields, and each of its cells by the checks of a single job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from mvprune.common.identifiers import ID_PATTERN, ID_RULE
from mvprune.common.suggestions import must_be_one_of
from mvprune.data.tasks import Task, UnknownTask, get_task
from mvprune.spec import cells, messages
from mvprune.spec.cells import DENSITY, SEED, BadValue
from mvprune.spec.gate import OF_THE_ARTIFACT
from mvprune.spec.lookup import parameter_of
from mvprune.spec.parameter import Kind
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.patterns import gives_density
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import Violation, bad
from mvprune_service.api.checks.options import check_numbers
from mvprune_service.api.checks.policies import check_gates
from mvprune_service.domain.cells import Axis, Cell, Origin, Range, size
from mvprune_service.sweeps.points import bounds_of, cell_of, plain

MAX_ID = 50  # characters of a sweep's id: the ids of its jobs are longer
_SPEC, _POLICY = "sweep.spec", "sweep.policy"
_PATTERN = "pattern"
_SHOWN = 10  # values of an axis
_OBJECTIVES = ("latency_ms", "encoder_nonzero", "kept_weights", "sparse_flops")  # beside those of gates
_SEARCHED = {  # parameters that a search does not take, and why
    DENSITY: "it is searched",
    SEED: "give search.seeds, the jobs for each density",
    _PATTERN: "it has one density, and a search compares several",
    messages.MASK_FROM: "no density above that of the mask can be reached; give densities in place of the search",
    "structure_density": "it must be above each of the densities of a search",
}


def strategy_of(spec: sweep_pb2.SweepSpec) -> str:
    """grid, random, search or tickets."""
    return str(spec.WhichOneof("strategy") or "grid")


def check_id(sweep_id: str) -> Iterator[Violation]:
    """A sweep's id that the user chose."""
    if sweep_id and not (ID_PATTERN.fullmatch(sweep_id) and len(sweep_id) <= MAX_ID):
        yield bad("sweep_id", sweep_id, f"{ID_RULE}, at most {MAX_ID} characters in all")


class Axes:
    """The axes, points and exclusions of a sweep, read and checked.

    Args:
        field: the message that has them, for violations.
        may_have_ranges: whether values may be drawn from a range.
        may_have_tasks: whether the task may differ.
    """

    def __init__(self, field: str, *, may_have_ranges: bool = False, may_have_tasks: bool = False) -> None:
        self._field = field
        self._may_have_ranges = may_have_ranges
        self._may_have_tasks = may_have_tasks
        self.axes: list[Axis] = []
        self.points: list[Cell] = []
        self.exclude: list[Cell] = []
        self.violations: list[Violation] = []

    def read(self, axes: Sequence[Any], points: Sequence[Any], exclude: Sequence[Any] = ()) -> None:
        """Reads the messages, and collects what is wrong with them."""
        known = set[str]()
        for number, axis in enumerate(axes):
            place = f"{self._field}.axes[{number}]"
            self._read_axis(place, axis, known)
            known.add(axis.parameter)
        self.points = self._read_cells("points", points)
        self.exclude = self._read_cells("exclude", exclude)
        if not self.violations:
            self._check_exclusions()

    def _check_exclusions(self) -> None:
        """Adds a violation for each exclusion that excludes nothing."""
        values = {axis.parameter: axis.values for axis in self.axes if axis.range is None}
        names = {axis.parameter for axis in self.axes}
        for number, partial in enumerate(self.exclude):
            place = f"{self._field}.exclude[{number}]"
            for name, value in sorted(partial.items()):
                if name not in names:
                    rule = f"a parameter of an axis ({', '.join(sorted(names)) or 'there is none'})"
                    self.violations.append(bad(place, name, rule))
                elif name in values and value not in values[name]:
                    known = ", ".join(map(str, values[name][:_SHOWN]))
                    self.violations.append(bad(f"{place}.{name}", value, f"a value of its axis ({known})"))

    def _check_parameter(self, name: str) -> None:
        """Raises BadValue unless the points of the sweep may differ in this parameter."""
        cells.parameter_named(name)
        if name == "task" and not self._may_have_tasks:
            rule = "must be a parameter whose values can be compared, got 'task'; create one sweep for each task"
            raise BadValue(rule)

    def _read_axis(self, place: str, axis: Any, known: set[str]) -> None:
        try:
            self._check_parameter(axis.parameter)
        except BadValue as error:
            self.violations.append(Violation(f"{place}.parameter", str(error)))
            return
        if axis.parameter in known:
            self.violations.append(bad(f"{place}.parameter", axis.parameter, "given by one axis only"))
        drawn = self._read_range(place, axis) if axis.HasField("range") else None
        if drawn is None and not axis.values and not axis.HasField("range"):
            self.violations.append(Violation(f"{place}.values", "must have at least one value, got none"))
        values = list[Any]()
        for index, value in enumerate(axis.values):
            try:
                checked = cells.checked(axis.parameter, plain(value))
            except BadValue as error:
                self.violations.append(Violation(f"{place}.values[{index}]", str(error)))
                continue
            if checked in values:
                self.violations.append(
                    bad(f"{place}.values[{index}]", checked, "a value that the axis does not have yet")
                )
            values.append(checked)
        self.axes.append(Axis(axis.parameter, tuple(values), drawn))

    def _read_range(self, place: str, axis: Any) -> Range | None:
        given, place = axis.range, f"{place}.range"
        if not self._may_have_ranges:
            self.violations.append(bad(place, "a range", "unset, except with the random strategy; give values"))
        elif axis.values:
            self.violations.append(bad(place, "a range", "unset beside values"))
        elif not (-math.inf < given.min < given.max < math.inf) or (given.log and given.min <= 0):
            rule = "finite, min below max, and above 0 with log"
            self.violations.append(bad(place, f"{given.min:g} to {given.max:g}", rule))
        elif (known := cells.parameter_named(axis.parameter)).kind is not Kind.NUMBER:
            rule = "unset for a parameter that is no fraction or other number; give values"
            self.violations.append(bad(place, axis.parameter, rule))
        elif known.bound is not None and not (given.min in known.bound and given.max in known.bound):
            self.violations.append(bad(place, f"{given.min:g} to {given.max:g}", str(known.bound)))
        else:
            return Range(given.min, given.max, given.log)
        return None

    def _read_cells(self, name: str, given: Sequence[Any]) -> list[Cell]:
        found = list[Cell]()
        for index, struct in enumerate(given):
            place = f"{self._field}.{name}[{index}]"
            if not struct.fields:
                self.violations.append(Violation(place, "must have at least one parameter, got none"))
            for key, value in struct.fields.items():
                try:
                    self._check_parameter(key)
                    cells.checked(key, plain(value))
                except BadValue as error:
                    self.violations.append(Violation(f"{place}.{key[:63]}", str(error)))
                    break
            else:
                found.append(cell_of(struct))
        return found


def read_extension(axes: Axes, request: sweep_pb2.ExtendSweepRequest) -> list[Violation]:
    """Reads the axes and points of a request; what is wrong with them, at its fields."""
    axes.read(request.axes, request.points)
    found = [Violation(field.removeprefix("extend."), text) for field, text in axes.violations]
    if not found and not (axes.axes or axes.points):
        found.append(Violation("axes", "must have at least one axis, or points, got none"))
    return found


def check_strategy(spec: sweep_pb2.SweepSpec, axes: Axes, max_points: int) -> Iterator[Violation]:
    """The strategy, with the axes and the base that it needs; and how many points it makes."""
    yield from check_numbers(f"{_SPEC}.{strategy_of(spec)}", getattr(spec, strategy_of(spec)))
    named = {axis.parameter for axis in axes.axes}
    patterns = [str(value) for axis in axes.axes if axis.parameter == _PATTERN for value in axis.values]
    match strategy_of(spec):
        case "search":
            yield from _check_search(spec, named if any(map(gives_density, patterns)) else named - {_PATTERN})
        case "random":
            if not 1 <= spec.random.points <= max_points:
                yield bad(f"{_SPEC}.random.points", spec.random.points, f"from 1 to {max_points:,}")
            if not named:
                yield Violation(f"{_SPEC}.axes", "must have at least one axis to draw from, got none")
        case _:
            if not (named or spec.points):
                yield Violation(f"{_SPEC}.axes", "must have at least one axis, or points, got none")
    if strategy_of(spec) != "search" and not (spec.base.target_density or gives_density(spec.base.pattern)):
        lacking = [point for point in axes.points if DENSITY not in point and not gives_density(point.get(_PATTERN))]
        by_axis = DENSITY in named or (patterns and all(map(gives_density, patterns)))
        if not by_axis and (axes.axes or lacking):
            rule = "a fraction of the prunable weights that is kept, unless an axis or every point has the density"
            yield bad(f"{_SPEC}.base.target_density", 0, rule)
    count = spec.random.points if strategy_of(spec) == "random" else size(axes.axes)
    count += len(spec.points)
    if count > max_points:
        yield bad(f"{_SPEC}.axes", count, f"at most {max_points:,} points; use fewer values, or the random strategy")


def _check_search(spec: sweep_pb2.SweepSpec, named: set[str]) -> Iterator[Violation]:
    field = f"{_SPEC}.search"
    if not spec.gates and not spec.HasField("max_loss"):
        rule = "must have at least one gate for a search, such as delta_accuracy>=-1 or --max-loss 1.0, got none"
        yield Violation(f"{_SPEC}.gates", rule)
    if spec.base.target_density:
        yield bad(f"{_SPEC}.base.target_density", f"{spec.base.target_density:g}", "unset: it is searched")
    if gives_density(spec.base.pattern):
        yield bad(f"{_SPEC}.base.pattern", spec.base.pattern, f"unset; {_SEARCHED[_PATTERN]}")
    if spec.base.HasField("structure_density"):
        field_of_base, given = f"{_SPEC}.base.structure_density", spec.base.structure_density
        yield bad(field_of_base, given, f"unset; {_SEARCHED['structure_density']}")
    mask = spec.base.locked_mask.mask_from
    if (source := mask.WhichOneof("source")) is not None:
        field_of_base, given = f"{_SPEC}.base.locked_mask.mask_from.{source}", getattr(mask, source)
        yield bad(field_of_base, given, f"unset; {_SEARCHED[messages.MASK_FROM]}")
    for name in sorted(named & _SEARCHED.keys()):
        yield bad(f"{_SPEC}.axes", name, f"axes of other parameters; {_SEARCHED[name]}")
    low, high, _ = bounds_of(spec.search)
    if low >= high:
        yield bad(field, f"{low:g} and {high:g}", "min_density below max_density")
    seeds = PARAMETERS[SEED].bound
    last = spec.base.seed + max(1, spec.search.seeds) - 1
    if seeds is not None and spec.base.seed in seeds and last not in seeds:
        yield bad(f"{_SPEC}.base.seed", spec.base.seed, f"{seeds} with {spec.search.seeds} seeds from it on")


def gates_of_loss(spec: sweep_pb2.SweepSpec) -> list[job_pb2.Gate]:
    """The gate that `max_loss` stands for; none where it is unset, or where there is no such gate."""
    task = _task_of(spec)
    is_given = spec.HasField("max_loss") and 0 <= spec.max_loss <= 100
    if not is_given or task is None or task.primary_metric in task.kind.losses:
        return []
    fraction = 0.0 - float(Decimal(repr(spec.max_loss)) / 100)
    return [job_pb2.Gate(metric=f"delta/{task.primary_metric}", min=fraction)]


def _task_of(spec: sweep_pb2.SweepSpec) -> Task | None:
    try:
        return get_task(spec.base.task, spec.base.metric)
    except UnknownTask:
        return None  # the base's violation


def check_question(spec: sweep_pb2.SweepSpec) -> Iterator[Violation]:
    """Gates and objectives."""
    yield from check_numbers(_SPEC, spec)
    task, own = _task_of(spec), f"{_SPEC}.gates[{len(spec.gates)}]"
    if spec.HasField("max_loss") and task is not None and (metric := task.primary_metric) in task.kind.losses:
        rule = f"unset for {task.name}, whose metric {metric} is not counted in points"
        yield bad(f"{_SPEC}.max_loss", spec.max_loss, f"{rule}; use a gate, such as delta_{metric}<=2")
    gates = [*spec.gates, *gates_of_loss(spec)]
    as_job = job_pb2.Job(policy=job_pb2.ExecutionPolicy(gates=gates))
    for field, description in check_gates(as_job, task):
        place = field.replace("job.policy", _SPEC)
        yield Violation(f"{_SPEC}.max_loss" if place.startswith(own) else place, description)
    for index, gate in enumerate(spec.gates):
        if gate.fail_job:
            yield bad(f"{_SPEC}.gates[{index}].fail_job", "true", "unset: a gate of a sweep fails no job")
    yield from _check_contradictions(gates)
    seen = set[str]()
    for index, objective in enumerate(spec.objectives):
        place = f"{_SPEC}.objectives[{index}]"
        if objective.metric in seen:
            yield bad(f"{place}.metric", objective.metric, "given once")
        seen.add(objective.metric)
        if objective.direction == sweep_pb2.Objective.DIRECTION_UNSPECIFIED:
            yield bad(f"{place}.direction", "", "MAXIMIZE or MINIMIZE")
        if task is not None and objective.metric not in _metrics(task):
            yield Violation(f"{place}.metric", must_be_one_of(_metrics(task), objective.metric))


def check_policy_of_sweep(policy: sweep_pb2.SweepPolicy, spec: sweep_pb2.SweepSpec) -> Iterator[Violation]:
    """How the sweep is run."""
    yield from check_numbers(_POLICY, policy)
    if policy.HasField("max_runtime") and policy.max_runtime.ToMicroseconds() <= 0:
        yield bad(f"{_POLICY}.max_runtime", f"{policy.max_runtime.ToSeconds()} s", "above 0 s")
    if policy.early_stop and (strategy := strategy_of(spec)) in ("search", "tickets"):
        yield bad(f"{_POLICY}.early_stop", "true", f"unset with the strategy {strategy}, which needs every result")
    elif policy.early_stop and not spec.base.training.HasField("evaluate_every"):
        rule = "unset without evaluate_every; give evaluate_every, the steps between evaluations"
        yield bad(f"{_POLICY}.early_stop", "true", rule)
    if policy.HasField("max_gpu_hours") and not policy.max_gpu_hours > 0:
        yield bad(f"{_POLICY}.max_gpu_hours", policy.max_gpu_hours, "above 0")


def place_of(violation: Violation, cell: Cell, origin: Origin) -> Violation:
    """A violation of a cell's job, at the place of the sweep that has the value."""
    field, description = violation
    known = parameter_of(field)
    if known is not None and (known.name in origin.indices or (origin.point is not None and known.name in cell)):
        return Violation(place_of_value(known.name, origin), description)
    if field.startswith("job.policy"):
        return Violation(f"{_SPEC}.job_policy{field.removeprefix('job.policy')}", description)
    if field.startswith("job.spec"):
        return Violation(f"{_SPEC}.base{field.removeprefix('job.spec')}", description)
    return Violation(field.replace("job.", "sweep.", 1), description)


def place_of_value(name: str, origin: Origin) -> str:
    """The place of the sweep that has a value of a cell."""
    if origin.point is not None:
        return f"{_SPEC}.points[{origin.point}].{name}"
    axis, value = origin.indices[name]
    return f"{_SPEC}.axes[{axis}].range" if value is None else f"{_SPEC}.axes[{axis}].values[{value}]"


def _check_contradictions(gates: Sequence[job_pb2.Gate]) -> Iterator[Violation]:
    lows = {gate.metric: gate.min for gate in gates if gate.HasField("min")}
    for index, gate in enumerate(gates):
        low = lows.get(gate.metric, -math.inf)
        if gate.HasField("max") and low > gate.max:
            rule = f"at least {low:g}, the min of another gate; no value passes both"
            yield bad(f"{_SPEC}.gates[{index}].max", f"{gate.max:g}", rule)


def _metrics(task: Task) -> list[str]:
    return [*OF_THE_ARTIFACT, *_OBJECTIVES, *(f"{kind}/{name}" for kind in ("eval", "delta") for name in task.metrics)]
