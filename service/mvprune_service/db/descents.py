"""The next stages of a descent: domain/descent.py on the points of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from mvprune.spec.cells import DENSITY, SEED
from mvprune.spec.gate import Gate
from mvprune.sweep.verdict import Question
from mvprune.v1 import sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db.search import UNDECIDED, combinations, passes_gates
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.domain.descent import (
    DENSE,
    LEAST_STEPS,
    MEASURED,
    NEAR,
    ROUNDED,
    Result,
    Speed,
    Stage,
    seconds_of,
    stages,
    steps_within,
)
from mvprune_service.domain.sweeping import PointState
from mvprune_service.sweeps.descents import STEPS, cell_of_stage, point_of, rounds
from mvprune_service.sweeps.points import NewPoint, Proposal, ladder_of, question_of

_Known = dict[frozenset[tuple[str, Any]], PointRow]


def next_points(
    spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, points: Sequence[PointRow], elapsed: float
) -> Proposal:
    """The points to add now: they are known by their cells, as the job of a point may have another id after a retry.
    Each combination of the axes is a descent by itself, and each seed a chain of jobs.

    Args:
        elapsed: seconds for which the sweep has been active.
    """
    known: _Known = {_key(point.cell): point for point in points}
    found = [_next_of(spec, policy, combination, known, elapsed) for combination in combinations(spec)]
    return Proposal(
        [point for one in found for point in one.points],
        all(one.is_complete for one in found),
        [note for one in found for note in one.notes],
    )


class _Length(NamedTuple):
    """The length of a descent.

    Attributes:
        whole: steps of a whole run; 0: the measured run has not ended.
        end: seconds after the beginning of the sweep, when it has to have ended; None: it has all the time it needs.
        speed: what the measured run has shown.
        notes: on what was chosen now.
    """

    whole: int
    end: float | None = None
    speed: Speed = Speed(0.0, 0.0)
    notes: Sequence[str] = ()


def _next_of(
    spec: sweep_pb2.SweepSpec,
    policy: sweep_pb2.SweepPolicy,
    combination: Mapping[str, Any],
    known: _Known,
    elapsed: float,
) -> Proposal:
    """The points that the descent of a combination adds now."""
    question, densities, results = question_of(spec), ladder_of(spec.search), dict[Stage, Result]()
    chains = [{**combination, **seed} for seed in _seeds(spec)]
    length = _length(spec, policy, chains[0], known, elapsed)
    while True:
        found = stages(densities, results, rounds=rounds(spec), measures=spec.search.HasField("time"))
        if found[-1] in results:
            return Proposal([], is_complete=True)
        stage = found[-1]
        rows = [[known.get(_key(cell_of_stage(chain, one, length.whole))) for one in found] for chain in chains]
        if any(row[-1] is None for row in rows):
            has_rung = any(one.kind == "rung" for one in results)  # one density is tried in any case
            if has_rung and (late := _lateness(stage, length, elapsed)):
                return Proposal([], is_complete=True, notes=[late])
            lacking = [(chain, row) for chain, row in zip(chains, rows, strict=True) if row[-1] is None]
            added = [_point(spec, chain, found, row, length.whole) for chain, row in lacking]
            return Proposal(added, is_complete=False, notes=length.notes)
        last = [row[-1] for row in rows if row[-1] is not None]
        if {point.state for point in last} & UNDECIDED:
            return Proposal([], is_complete=False)
        if stage != ROUNDED and any(point.state is not PointState.SUCCEEDED for point in last):
            return Proposal([], is_complete=True)  # there is no result to go on from
        if stage in (MEASURED, DENSE, ROUNDED) or passes_gates(question, last):
            results[stage] = "passed"
        else:
            results[stage] = "near" if passes_gates(_eased(question), last) else "missed"


def _length(
    spec: sweep_pb2.SweepSpec,
    policy: sweep_pb2.SweepPolicy,
    chain: Mapping[str, Any],
    known: _Known,
    elapsed: float,
) -> _Length:
    """The length of the descents that differ from `chain` in their seeds. It is chosen once, and the cell of the dense
    model keeps it."""
    if not spec.search.HasField("time"):
        return _Length(spec.base.training.max_steps)
    measured = known.get(_key(cell_of_stage(chain, MEASURED, 0)))
    if measured is None or measured.result is None:
        return _Length(0)
    end, speed = spec.search.time.ToMilliseconds() / 1000, _speed(measured.result)
    if chosen := next((point.cell[STEPS] for point in known.values() if _is_dense(spec, chain, point)), 0):
        return _Length(chosen, end, speed)
    descents = len(combinations(spec)) * max(1, spec.search.seeds)
    left = (end - elapsed) / math.ceil(descents / max(1, policy.parallel))
    densities = len(ladder_of(spec.search))
    whole = steps_within(left, speed, densities, rounds=rounds(spec))
    return _Length(whole, end, speed, [_note(whole, speed, left, densities)])


def _is_dense(spec: sweep_pb2.SweepSpec, chain: Mapping[str, Any], point: PointRow) -> bool:
    """Whether a point is that of the dense model. One that was given beside the search may have such a cell too."""
    dense = {**chain, DENSITY: 1.0, STEPS: point.cell.get(STEPS)}
    return _key(point.cell) == _key(dense) and point_of(spec, point.cell, DENSE).sha256 == point.spec_sha256


def _lateness(stage: Stage, length: _Length, elapsed: float) -> str:
    """That a stage would end too late, as a note; "" if it does not."""
    if length.end is None:
        return ""
    minutes = (elapsed + seconds_of(stage, length.whole, length.speed)) / 60
    if minutes <= length.end / 60:
        return ""
    return f"the search ends: density {stage.density:g} would take it to {minutes:.0f} of {length.end / 60:g} min"


def _speed(result: Mapping[str, Any]) -> Speed:
    """What the result of the measured run has shown."""
    ran, steps = result["ran_us"] / SECOND, MEASURED.steps(0)
    step = result["step_us"] / SECOND or ran / steps
    return Speed(step, max(0.0, ran - step * steps))


def _note(whole: int, speed: Speed, left: float, densities: int) -> str:
    rung, longer_run = Stage("rung", 0.5), Stage("whole", 0.5)
    about = (seconds_of(one, whole, speed) / 60 for one in (DENSE, rung, longer_run))
    dense, each, longer = (f"{minutes:.1f} min" for minutes in about)
    least = "; these are the least, as the time is too short: results will be poor" if whole == LEAST_STEPS else ""
    return (
        f"a step takes {speed.step:.2g} s, and a job {speed.other:.0f} s beside its steps: within the {left / 60:.0f} "
        f"min that are left, the dense model has {whole:,} steps ({dense}), each of at most {densities} densities "
        f"{rung.steps(whole):,} ({each}) and a whole run of one {whole:,} ({longer}){least}"
    )


def _point(
    spec: sweep_pb2.SweepSpec,
    chain: Mapping[str, Any],
    found: Sequence[Stage],
    row: Sequence[PointRow | None],
    whole: int,
) -> NewPoint:
    stage, jobs = found[-1], dict(zip(found, [point.job_id if point else "" for point in row], strict=True))
    cell = cell_of_stage(chain, stage, whole)
    earlier = [DENSE] if stage.kind == "whole" else [one for one in found[:-1] if one not in (MEASURED, ROUNDED)]
    return point_of(spec, cell, stage, dense=jobs.get(DENSE, ""), before=jobs[earlier[-1]] if earlier else "")


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
