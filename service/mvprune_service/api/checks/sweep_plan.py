"""The points of a new sweep: its cells, each checked as a single job would be."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from mvprune.sources.references import Roots
from mvprune.spec import cells
from mvprune.spec.cells import BadValue
from mvprune.spec.parameter import AUTO
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import Violation, bad
from mvprune_service.api.access.threads import Rests
from mvprune_service.api.checks.data_checks import DataChecks
from mvprune_service.api.checks.model_checks import ModelChecks
from mvprune_service.api.checks.specs import Checker
from mvprune_service.api.checks.sweep_checks import (
    Axes,
    check_policy_of_sweep,
    check_question,
    check_strategy,
    gates_of_loss,
    place_of,
    place_of_value,
    read_extension,
    strategy_of,
)
from mvprune_service.api.checks.sweep_inputs import inputs_of
from mvprune_service.api.checks.uploaded import Uploaded
from mvprune_service.db import teachers
from mvprune_service.db.beginnings import begins_with
from mvprune_service.db.search import cells_at, combinations
from mvprune_service.domain.cells import Cell, Origin, Placed, draw, grid
from mvprune_service.domain.descent import Stage, most_stages
from mvprune_service.domain.search import most_steps
from mvprune_service.domain.uploading import references
from mvprune_service.executors.base import Capacity
from mvprune_service.sweeps.descents import LENGTHS, is_descent, make_fast, rounds, why_not, with_steps, within_time
from mvprune_service.sweeps.points import NewPoint, ladder_of, new_point

_SPEC = "sweep.spec"
_SHARED_BASELINE = (
    "the dense baseline is trained once, in a job of its own, for all points that can share it; own_baselines trains "
    "one in each job"
)


@dataclass
class SweepPlan:
    """The points of a sweep, and its violations.

    Attributes:
        points: to create now; a search, or a study of tickets, adds more.
        most_jobs: how many jobs there are at most.
        checked: points that were checked: those of the sweep, or of a search a sample.
        teachers: name of a job that teaches to the spec of a student of it, and to its place, for violations.
        masks: specs that begin with the artifact of a job, by that job, and their places, for violations.
        notes: what was replaced or left out, and what the readers of the data report.
        length_notes: those on the length of the checked points.
        model_sizes: model to its ModelSize, in base64.
        inputs_us: when the newest of the input files was modified, 0 where none is read here.
        uploads: references to the uploads that jobs need.
        steps: of the trainings of each checked point, by the digest of its spec; 0 where they are not known.
        knows_shapes: whether the shapes of all models are known.
    """

    points: list[NewPoint] = field(default_factory=list)
    most_jobs: int = 0
    checked: list[NewPoint] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    teachers: dict[str, tuple[job_pb2.CompressionSpec, str]] = field(default_factory=dict)
    masks: dict[str, tuple[job_pb2.CompressionSpec, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    length_notes: set[str] = field(default_factory=set)
    model_sizes: dict[str, str] = field(default_factory=dict)
    inputs_us: int = 0
    uploads: set[str] = field(default_factory=set)
    steps: dict[str, int] = field(default_factory=dict)
    knows_shapes: bool = True


@dataclass(frozen=True)
class Surroundings:
    """Facts that jobs are checked against.

    Attributes:
        roots: what the caller may let the server read.
        capacity: what the executor has; None where it does not answer.
        uploaded: the project's uploads; None: there are none.
        data: reads data files.
        owner: the project.
        deadline: when data files must have been checked, of time.monotonic.
    """

    roots: Roots
    capacity: Capacity | None
    uploaded: Uploaded | None
    data: DataChecks
    owner: str
    deadline: float


def plan_sweep(sweep: sweep_pb2.Sweep, around: Surroundings, max_points: int) -> SweepPlan:
    """Plans a sweep. Reads models' headers and data files. A search for a fast model gets what makes it fast, where
    it leaves that open and the model can have it."""
    asked = sweep_pb2.Sweep()
    asked.CopyFrom(sweep)
    options = make_fast(sweep.spec) if strategy_of(sweep.spec) == "search" else ""
    plan = _plan(sweep, around, max_points)
    if not options:
        return plan
    if plan.knows_shapes and not plan.violations:
        note = f"{options}, which the sparse runtime computes fastest (--goal density or bytes leaves that out)"
    else:
        why = plan.violations[0].description if plan.violations else "the shapes of the model are not known here"
        note = f"without {options}, which the sparse runtime would compute fastest: {why}"
        sweep.CopyFrom(asked)
        plan = _plan(sweep, around, max_points)
    plan.notes.insert(0, f"the search is for a fast model: {note}")
    return plan


def _plan(sweep: sweep_pb2.Sweep, around: Surroundings, max_points: int) -> SweepPlan:
    plan, spec = SweepPlan(), sweep.spec
    axes = Axes(_SPEC, may_have_ranges=strategy_of(spec) == "random")
    axes.read(spec.axes, spec.points, spec.exclude)
    plan.violations += axes.violations
    if not axes.violations:
        plan.violations += check_strategy(spec, axes, max_points)
    plan.violations += check_question(spec)
    plan.violations += check_policy_of_sweep(sweep.policy, spec)
    if plan.violations:
        return plan
    spec.gates.extend(gates_of_loss(spec))
    if spec.HasField("max_loss") and not (spec.base.dataset.test or spec.base.dataset.HasField("hold_out")):
        spec.base.dataset.hold_out = True  # the best of many points looks better on the examples that chose it
    placed = list(_placed(spec, axes))
    if not placed:
        plan.violations.append(Violation(f"{_SPEC}.exclude", "must leave at least one point, got exclusions of all"))
        return plan
    drawn = len(placed) - len(axes.points)
    if strategy_of(spec) == "random" and drawn < spec.random.points:
        plan.notes.append(f"the axes have {drawn:,} different cells, fewer than the {spec.random.points:,} of the spec")
    spec.train_rows = _train_rows(sweep, [cell for cell, _ in placed], around)
    found = _build(plan, sweep, placed)
    check_points(plan, sweep, found, around)
    plan.checked = [point for point, _ in found]
    if strategy_of(spec) == "search":
        beside = [point for point, origin in found if origin.point is not None]
        _choose_way(plan, sweep, [point for point, origin in found if origin.point is None])
        searched = len(combinations(spec)) * max(1, spec.search.seeds)
        densities = len(ladder_of(spec.search))
        most = most_steps(densities)
        if is_descent(spec):
            most = most_stages(densities, rounds=rounds(spec), measures=spec.search.HasField("time"))
        plan.points, plan.most_jobs = beside, len(beside) + searched * most
    else:
        plan.points, plan.most_jobs = plan.checked, len(plan.checked)
    return plan


def _choose_way(plan: SweepPlan, sweep: sweep_pb2.Sweep, searched: Sequence[NewPoint]) -> None:
    """Has a search descend if it can, unless it says otherwise; a descent has its length in steps."""
    spec, search, way = sweep.spec, sweep.spec.search, sweep_pb2.SearchStrategy
    lengths = {plan.steps.get(point.sha256, 0) for point in searched}
    steps = min(lengths, default=0) if len(lengths) == 1 else 0
    reason = why_not(sweep, combinations(spec), steps)
    if search.way == way.DESCENT and reason:
        plan.violations.append(Violation(f"{_SPEC}.search.way", f"must be bisection or unset, got descent: {reason}"))
    elif search.way == way.WAY_UNSPECIFIED and reason:
        plan.notes.append(f"the search is a bisection, not a descent: {reason}")
    if search.HasField("time"):
        plan.violations += _check_time(spec, reason or "it is a bisection" * (search.way == way.BISECTION))
    if search.way == way.WAY_UNSPECIFIED:
        search.way = way.BISECTION if reason else way.DESCENT
    if is_descent(spec) and not reason:
        other = {_SHARED_BASELINE, *(note for point in searched for note in point.notes)}  # of a bisection
        other |= plan.length_notes  # of whole runs
        plan.notes = [note for note in plan.notes if note not in other]
        if search.HasField("time"):
            plan.notes.append(within_time(spec))
            return
        plan.notes.append(with_steps(spec, combinations(spec), steps))
        plan.steps |= dict.fromkeys((point.sha256 for point in searched), Stage("rung", 1).steps(steps))


def _check_time(spec: sweep_pb2.SweepSpec, reason: str) -> Iterator[Violation]:
    """A time is for a descent, whose steps follow from it. `reason`: why the search is none."""
    rule = "with a time, from which the steps follow"
    if reason:
        given = f"{spec.search.time.ToSeconds()} s"
        yield bad(f"{_SPEC}.search.time", given, f"unset where a search is no descent: {reason}")
    for name in LENGTHS:
        if value := getattr(spec.base.training, name):
            yield bad(f"{_SPEC}.base.training.{name}", value, f"unset {rule}")
        if any(axis.parameter == name for axis in spec.axes):
            yield bad(f"{_SPEC}.axes", name, f"axes of other parameters {rule}")


def plan_extension(sweep: sweep_pb2.Sweep, request: sweep_pb2.ExtendSweepRequest, around: Surroundings) -> SweepPlan:
    """Plans the points that a request appends."""
    plan, axes = SweepPlan(), Axes("extend")
    plan.violations += read_extension(axes, request)
    if plan.violations:
        return plan
    found = _build(plan, sweep, list(grid(axes.axes, axes.points, ())))
    check_points(plan, sweep, found, around)
    plan.violations = [Violation(field.removeprefix(f"{_SPEC}."), text) for field, text in plan.violations]
    plan.teachers = _without_spec(plan.teachers)
    plan.masks = _without_spec(plan.masks)
    plan.points = plan.checked = [point for point, _ in found]
    plan.most_jobs = len(plan.points)
    return plan


def _without_spec(
    places: dict[str, tuple[job_pb2.CompressionSpec, str]],
) -> dict[str, tuple[job_pb2.CompressionSpec, str]]:
    """With the fields of the request of an extension."""
    return {name: (spec, place.removeprefix(f"{_SPEC}.")) for name, (spec, place) in places.items()}


def _placed(spec: sweep_pb2.SweepSpec, axes: Axes) -> Iterable[Placed]:
    match strategy_of(spec):
        case "search":
            # A search chooses densities later: the largest one of each combination is checked now.
            densities = ladder_of(spec.search)
            for placed in grid(axes.axes, (), axes.exclude) if axes.axes else [Placed({}, Origin({}))]:
                yield Placed(cells_at(spec, placed.cell, densities[-1])[0], placed.origin)
            yield from grid((), axes.points, ())
        case "random":
            chance = Random(spec.random.seed)  # noqa: S311 (no secret)
            yield from draw(axes.axes, spec.random.points, chance, axes.exclude, lambda cell: _spec_key(spec, cell))
            yield from grid((), axes.points, ())
        case _:
            yield from grid(axes.axes, axes.points, axes.exclude)


def _spec_key(spec: sweep_pb2.SweepSpec, cell: Cell) -> str:
    """The same for cells that are one point."""
    own = cells.of_method(spec.base, cell)
    try:
        return NewPoint(own, cells.build(spec.base, own).spec).sha256
    except BadValue:
        return repr(sorted(own.items()))  # `_build` says what is wrong


def _train_rows(sweep: sweep_pb2.Sweep, placed: Sequence[Cell], around: Surroundings) -> int:
    """The rows to train on, if a method has to be chosen by them and they are known and the same for all cells; else
    0."""
    base = sweep.spec.base
    has_own_data = any(PARAMETERS[name].group == "data" for cell in placed for name in cell)
    if has_own_data or all(cells.method_of(base, cell) != AUTO for cell in placed):
        return 0
    return _checker(sweep, base, ModelChecks(), around).train_rows()


def _checker(
    sweep: sweep_pb2.Sweep, spec: job_pb2.CompressionSpec, models: ModelChecks, around: Surroundings
) -> Checker:
    job = job_pb2.Job(spec=spec, policy=sweep.spec.job_policy, display_name=sweep.display_name, labels=sweep.labels)
    return Checker(
        job,
        "",
        around.roots,
        models,
        around.uploaded,
        in_sweep=True,
        data=around.data,
        owner=around.owner,
        deadline=around.deadline,
    )


def _build(plan: SweepPlan, sweep: sweep_pb2.Sweep, placed: Sequence[Placed]) -> list[tuple[NewPoint, Origin]]:
    """The points of cells; equal specs are one point. An axis about an option of some methods does not apply to the
    others."""
    found = list[tuple[NewPoint, Origin]]()
    known, dropped, repeated = set[str](), dict[tuple[str, str], int](), 0
    rests = Rests()
    for cell, origin in placed:
        rests.rest()
        method = cells.method_of(sweep.spec.base, cell)
        own = cells.of_method(sweep.spec.base, cell) if origin.point is None else cell
        try:
            point = new_point(sweep.spec, sweep.policy, own)
        except BadValue as error:
            violation = Violation(place_of_value(error.parameter, origin), str(error))
            plan.violations += [violation] if violation not in plan.violations else []
            continue
        for name in (*point.dropped, *(cell.keys() - own.keys())):
            dropped[name, method] = dropped.get((name, method), 0) + 1
        if point.sha256 in known:
            repeated += 1
            continue
        known.add(point.sha256)
        found.append((point, origin))
    for (name, method), count in sorted(dropped.items()):
        plan.notes.append(f"{name} does not apply to {method}: {count} cells have no such value")
    if repeated:
        plan.notes.append(f"{repeated} cells are equal to others: each is one point")
    if not sweep.policy.own_baselines and any(teachers.trains(point.spec) for point, _ in found):
        plan.notes.append(_SHARED_BASELINE)
    return found


def check_points(
    plan: SweepPlan,
    sweep: sweep_pb2.Sweep,
    found: Sequence[tuple[NewPoint, Origin]],
    around: Surroundings,
) -> None:
    """Checks every point as a single job."""
    seen, models, rests = set[Violation](), ModelChecks(), Rests()
    for point, origin in found:
        rests.rest()
        checker = _checker(sweep, point.spec, models, around)
        checker.check()
        plan.steps[point.sha256] = checker.steps
        plan.uploads.update(references(point.spec).values())
        if around.capacity is not None and sweep.spec.job_policy.HasField("resources"):
            checker.check_feasible(around.capacity)
        for violation in checker.violations:
            placed = place_of(violation, point.cell, origin)
            if placed not in seen:
                seen.add(placed)
                plan.violations.append(placed)
        role = teachers.role_of(point.spec)
        if role is not None and (job_name := getattr(point.spec, role).job):
            named = place_of(Violation(f"job.spec.{role}.job", ""), point.cell, origin).field
            plan.teachers.setdefault(job_name, (point.spec, named))
        if begin := begins_with(point.spec):
            named_job = point.spec.start_from or point.spec.locked_mask.mask_from.job
            plan.masks.setdefault(named_job, (point.spec, place_of(Violation(begin, ""), point.cell, origin).field))
        plan.notes += [note for note in (*point.notes, *checker.notes) if note not in plan.notes]
        plan.length_notes.update(checker.length_notes)
        plan.knows_shapes &= checker.knows_shapes
        if checker.size is not None:
            plan.model_sizes[point.spec.model] = base64.b64encode(checker.size.SerializeToString()).decode()
    if sweep.policy.reuse:
        inputs = [inputs_of(point.spec, around.roots) for point, _ in found]
        plan.inputs_us = max((one.modified_us for one in inputs), default=0)
        if not all(one.is_complete for one in inputs):
            plan.notes.append(
                "reuse: models and data of the hub and of buckets were not checked for changes since a job ran"
            )
