"""The next densities of a search: domain/search.py on the points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mvprune.spec import cells
from mvprune.spec.cells import DENSITY, SEED
from mvprune.sweep.analysis import group_key, without_seed
from mvprune.sweep.verdict import Question, outcome, passes
from mvprune.v1 import sweep_pb2
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.domain.cells import grid
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.search import next_step
from mvprune_service.domain.sweeping import PointState
from mvprune_service.sweeps.points import NewPoint, Proposal, axes_of, cell_of, ladder_of, new_point, question_of

UNDECIDED = frozenset({PointState.PENDING, PointState.QUEUED, PointState.RUNNING})
_NOT_REACHED = FailureReason.DENSITY_NOT_REACHED.value


def next_points(spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, points: Sequence[PointRow]) -> Proposal:
    """The points to add now. Each combination of the axes is searched by itself."""
    question, densities = question_of(spec), ladder_of(spec.search)
    by_spec = {point.spec_sha256: point for point in points}
    added, is_complete = list[NewPoint](), True
    for combination in combinations(spec):
        passed: dict[int, bool] = {}
        while (step := next_step(len(densities), passed)) is not None:
            wanted = [new_point(spec, policy, cell) for cell in cells_at(spec, combination, densities[step])]
            known = [by_spec[new.sha256] for new in wanted if new.sha256 in by_spec]
            if len(known) < len(wanted) or {point.state for point in known} & UNDECIDED:
                added += [new for new in wanted if new.sha256 not in by_spec]
                is_complete = False
                break
            passes = passes_gates(question, known)
            if passes is None:
                break
            passed[step] = passes
    return Proposal(added, is_complete)


def combinations(spec: sweep_pb2.SweepSpec) -> list[Mapping[str, Any]]:
    """The combinations of the axes that are not excluded, each without options that its method does not have; without
    axes, one without values."""
    exclude = [cell_of(given) for given in spec.exclude]
    found = [cells.of_method(spec.base, placed.cell) for placed in grid(axes_of(spec), (), exclude)]
    return list({group_key(cell): cell for cell in found}.values()) if spec.axes else [{}]


def cells_at(spec: sweep_pb2.SweepSpec, combination: Mapping[str, Any], density: float) -> list[Mapping[str, Any]]:
    """The cells of one density: one for each seed."""
    cell = {**combination, DENSITY: density}
    seeds = max(1, spec.search.seeds)
    return [cell] if seeds == 1 else [{**cell, SEED: spec.base.seed + index} for index in range(seeds)]


def passes_gates(question: Question, points: Sequence[PointRow]) -> bool | None:
    """Whether a density that was measured passes; None where a job failed for another reason than the density: what it
    would have given is not known."""
    if all(point.state is PointState.SUCCEEDED for point in points):
        cell = without_seed(points[0].cell)
        return passes(question, [outcome(point.number, cell, point.result) for point in points if point.result])
    return False if _is_miss(points) else None


def _is_miss(points: Sequence[PointRow]) -> bool:
    """Whether the density could not be reached, which says that it is too small."""
    failed = [point for point in points if point.state is not PointState.SUCCEEDED]
    return all(point.state is PointState.FAILED and point.job_reason == _NOT_REACHED for point in failed)
