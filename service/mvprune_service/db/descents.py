"""The next stages of a descent: domain/descent.py on the points of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mvprune.spec.cells import SEED
from mvprune.spec.gate import Gate
from mvprune.sweep.verdict import Question
from mvprune.v1 import sweep_pb2
from mvprune_service.db.search import UNDECIDED, combinations, passes_gates
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.domain.descent import DENSE, NEAR, ROUNDED, Result, Stage, stages
from mvprune_service.domain.sweeping import PointState
from mvprune_service.sweeps.descents import cell_of_stage, point_of, rounds
from mvprune_service.sweeps.points import NewPoint, Proposal, ladder_of, question_of

_Known = dict[frozenset[tuple[str, Any]], PointRow]


def next_points(spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, points: Sequence[PointRow]) -> Proposal:
    """The points to add now: they are known by their cells, as the job of a point may have another id after a retry.
    Each combination of the axes is a descent by itself, and each seed a chain of jobs."""
    known: _Known = {_key(point.cell): point for point in points}
    added, is_complete = list[NewPoint](), True
    for combination in combinations(spec):
        new, has_ended = _next_of(spec, combination, known)
        added += new
        is_complete &= has_ended
    return Proposal(added, is_complete)


def _next_of(spec: sweep_pb2.SweepSpec, combination: Mapping[str, Any], known: _Known) -> tuple[list[NewPoint], bool]:
    """The points that a descent adds now, and whether no further ones follow."""
    question, densities, results = question_of(spec), ladder_of(spec.search), dict[Stage, Result]()
    chains = [{**combination, **seed} for seed in _seeds(spec)]
    while True:
        found = stages(densities, results, rounds=rounds(spec))
        if found[-1] in results:
            return [], True
        stage = found[-1]
        rows = [[known.get(_key(cell_of_stage(spec, chain, one))) for one in found] for chain in chains]
        if any(row[-1] is None for row in rows):
            lacking = [(chain, row) for chain, row in zip(chains, rows, strict=True) if row[-1] is None]
            return [_point(spec, chain, found, row) for chain, row in lacking], False
        last = [row[-1] for row in rows if row[-1] is not None]
        if {point.state for point in last} & UNDECIDED:
            return [], False
        if stage != ROUNDED and any(point.state is not PointState.SUCCEEDED for point in last):
            return [], True  # there is no result to go on from
        if stage in (DENSE, ROUNDED) or passes_gates(question, last):
            results[stage] = "passed"
        else:
            results[stage] = "near" if passes_gates(_eased(question), last) else "missed"


def _point(
    spec: sweep_pb2.SweepSpec, chain: Mapping[str, Any], found: Sequence[Stage], row: Sequence[PointRow | None]
) -> NewPoint:
    stage, jobs = found[-1], [point.job_id if point else "" for point in row]
    cell = cell_of_stage(spec, chain, stage)
    earlier = [(one, job) for one, job in zip(found[:-1], jobs, strict=False) if one != ROUNDED]
    if stage.kind == "recovery":
        earlier = [one for one in earlier if one[0] == Stage("rung", stage.density)]
    return point_of(spec, cell, stage, dense=jobs[0], before=earlier[-1][1] if earlier else "")


def _eased(question: Question) -> Question:
    """The question with gates that allow `NEAR` times the difference from the dense model."""

    def eased(gate: Gate) -> Gate:
        if not gate.metric.startswith("delta/"):
            return gate
        low, high = gate.min, gate.max
        return replace(gate, min=low and min(low, NEAR * low), max=high and max(high, NEAR * high))

    return replace(question, gates=tuple(map(eased, question.gates)))


def _seeds(spec: sweep_pb2.SweepSpec) -> list[dict[str, int]]:
    count = max(1, spec.search.seeds)
    return [{}] if count == 1 else [{SEED: spec.base.seed + index} for index in range(count)]


def _key(cell: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset((name, tuple(value) if isinstance(value, list) else value) for name, value in cell.items())
