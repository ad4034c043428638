"""The next densities of a search: domain/search.py on the points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mvprune.spec.cells import DENSITY, SEED
from mvprune.sweep.analysis import group_key
from mvprune.sweep.verdict import Question, outcome, passes
from mvprune.v1 import sweep_pb2
from mvprune_service.db.sweep_rows import PointRow
from mvprune_service.domain.cells import grid
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.search import next_step
from mvprune_service.domain.sweeping import PointState
from mvprune_service.points import NewPoint, axes_of, ladder_of, new_point, question_of

_NOT_REACHED = FailureReason.DENSITY_NOT_REACHED.value


class Search(NamedTuple):
    """What a search needs next, and whether it is complete: no further points will be added."""

    points: list[NewPoint]
    is_complete: bool


def next_points(spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, points: Sequence[PointRow]) -> Search:
    """The points to add now. Each combination of the axes is searched by itself."""
    question, densities = question_of(spec), ladder_of(spec.search)
    by_cell: dict[str, list[PointRow]] = {}
    for point in points:
        by_cell.setdefault(group_key(point.cell), []).append(point)
    added, is_complete = list[NewPoint](), True
    for combination in combinations(spec):
        measured = [by_cell.get(group_key({**combination, DENSITY: density}), []) for density in densities]
        step = _next(question, measured)
        if step is None:
            continue
        is_complete = False
        if not measured[step]:
            added += [new_point(spec, policy, cell) for cell in cells_at(spec, combination, densities[step])]
    return Search(added, is_complete)


def combinations(spec: sweep_pb2.SweepSpec) -> list[Mapping[str, Any]]:
    """The combinations of the axes; without axes, one without values."""
    axes = axes_of(spec)
    return [placed.cell for placed in grid(axes, (), ())] if axes else [{}]


def cells_at(spec: sweep_pb2.SweepSpec, combination: Mapping[str, Any], density: float) -> list[Mapping[str, Any]]:
    """The cells of one density: one for each seed."""
    cell = {**combination, DENSITY: density}
    seeds = max(1, spec.search.seeds)
    return [cell] if seeds == 1 else [{**cell, SEED: spec.base.seed + index} for index in range(seeds)]


def _next(question: Question, measured: Sequence[Sequence[PointRow]]) -> int | None:
    """The index of the density that is measured now, or next; None once the search of a combination has ended."""
    passed: dict[int, bool] = {}
    for index, points in enumerate(measured):
        states = {point.state for point in points}
        if states & {PointState.PENDING, PointState.QUEUED, PointState.RUNNING}:
            return index
        if states == {PointState.SUCCEEDED}:
            results = [outcome(point.number, point.cell, point.result) for point in points if point.result]
            passed[index] = passes(question, results)
        elif states and _is_miss(points):
            passed[index] = False
        elif states:  # a job failed for another reason: what it would have given is not known
            return None
    return next_step(len(measured), passed)


def _is_miss(points: Sequence[PointRow]) -> bool:
    """Whether the density could not be reached, which says that it is too small."""
    failed = [point for point in points if point.state is not PointState.SUCCEEDED]
    return all(point.state is PointState.FAILED and point.job_reason == _NOT_REACHED for point in failed)
