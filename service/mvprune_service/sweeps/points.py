"""Points of a sweep, as its spec has them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from google.protobuf.struct_pb2 import Struct

from mvprune.common.metrics import LATENCY_MS
from mvprune.data.tasks import get_task
from mvprune.spec import cells
from mvprune.spec.gate import gate_of
from mvprune.sweep.analysis import Objective
from mvprune.sweep.verdict import Question
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.domain import descent, search
from mvprune_service.domain.cells import Axis, Range
from mvprune_service.domain.density import fill_density
from mvprune_service.domain.method import fill_method
from mvprune_service.domain.run_length import Rows

_GOALS = {
    sweep_pb2.SearchStrategy.DENSITY: "density",
    sweep_pb2.SearchStrategy.BYTES: "bytes",
}
_EXACT = 2.0**53  # below it a double holds every whole number
_MIN_DENSITY, _MAX_DENSITY, _TOLERANCE = 0.01, 0.5, 0.15


@dataclass(frozen=True)
class NewPoint:
    """A cell and the spec of its job, which does not change any more.

    Attributes:
        dropped: options of the base that do not apply to the cell's method.
        notes: what was filled in.
    """

    cell: Mapping[str, Any]
    spec: job_pb2.CompressionSpec
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def serialized(self) -> bytes:
        """The stored form of the spec: equal specs have equal bytes."""
        return self.spec.SerializeToString(deterministic=True)

    @cached_property
    def sha256(self) -> str:
        """Digest of the spec: two cells with the same are one point."""
        return hashlib.sha256(self.serialized).hexdigest()


class Proposal(NamedTuple):
    """New points of a strategy, and whether it is complete: no further points will be added.

    Attributes:
        notes: on what was decided.
    """

    points: list[NewPoint]
    is_complete: bool
    notes: Sequence[str] = ()


def new_point(spec: sweep_pb2.SweepSpec, policy: sweep_pb2.SweepPolicy, cell: Mapping[str, Any]) -> NewPoint:
    """The point of a cell. Raises BadValue."""
    built = cells.build(spec.base, cell)
    rows = Rows(spec.train_rows, has_pairs=False, validation=0) if spec.train_rows else None
    notes = (fill_density(built.spec), fill_method(built.spec, rows))
    if not policy.own_baselines:
        share_baseline(built.spec)
    return NewPoint(cell, built.spec, built.dropped, tuple(filter(None, notes)))


def share_baseline(spec: job_pb2.CompressionSpec) -> None:
    """Has a job use the dense baseline of a job that others share, in place of training its own."""
    has_job = spec.teacher.WhichOneof("source") in ("job", "train")
    if spec.target_density < 1 and not has_job and spec.baseline.WhichOneof("source") is None:
        spec.baseline.train = True


def axes_of(spec: sweep_pb2.SweepSpec) -> list[Axis]:
    """The axes. Their values were checked. Raises BadValue."""
    return [
        Axis(
            axis.parameter,
            tuple(cells.checked(axis.parameter, plain(value)) for value in axis.values),
            Range(axis.range.min, axis.range.max, axis.range.log) if axis.HasField("range") else None,
        )
        for axis in spec.axes
    ]


def plain(value: Any) -> Any:
    """A google.protobuf.Value as a number, a text, a bool, a list, a table or None; also numbers that JSON lacks."""
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < _EXACT else number
        case "list_value":
            return [plain(one) for one in value.list_value.values]
        case "struct_value":
            return {name: plain(one) for name, one in value.struct_value.fields.items()}
        case "string_value" | "bool_value" as kind:
            return getattr(value, kind)
        case _:
            return None


def cell_of(given: Struct) -> dict[str, Any]:
    """The values of a cell. Raises BadValue."""
    return {name: cells.checked(name, plain(value)) for name, value in given.fields.items()}


def ladder_of(strategy: sweep_pb2.SearchStrategy) -> list[float]:
    """The densities that a search chooses from, ascending."""
    return search.ladder(*bounds_of(strategy))


def bounds_of(strategy: sweep_pb2.SearchStrategy) -> tuple[float, float, float]:
    """Smallest density, largest density and tolerance of a search."""
    default = descent.TOLERANCE if strategy.way == sweep_pb2.SearchStrategy.DESCENT else _TOLERANCE
    return (
        strategy.min_density if strategy.HasField("min_density") else _MIN_DENSITY,
        strategy.max_density if strategy.HasField("max_density") else _MAX_DENSITY,
        strategy.tolerance if strategy.HasField("tolerance") else default,
    )


def question_of(spec: sweep_pb2.SweepSpec) -> Question:
    """The question of a sweep."""
    objectives = [Objective(one.metric, one.direction == sweep_pb2.Objective.MAXIMIZE) for one in spec.objectives]
    if spec.HasField("search") and not objectives:
        goal = Objective(_GOALS.get(spec.search.goal, LATENCY_MS), maximize=False)
        primary = get_task(spec.base.task, spec.base.metric).primary_metric
        objectives = [goal, *Question().objectives_for(primary)]
    return Question(tuple(map(gate_of, spec.gates)), tuple(objectives), spec.seeds == sweep_pb2.SweepSpec.WORST)
