"""The results of a sweep, arranged for a report: means over seeds, lines, differences from dense."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mvprune.client.sweep_models import PointState, SweepPoint, SweepRecord
from mvprune.common.metrics import DENSE_INT8_LATENCY_MS, DENSE_LATENCY_MS
from mvprune.sources.schemes import shown
from mvprune.spec.gate import Gate
from mvprune.sweep.analysis import Group, Outcome, front, groups, missed
from mvprune.sweep.report.quantities import DIFFERENCE, Quality, Stat, stat, values_of
from mvprune.sweep.tickets.results import TicketResults, tickets_of
from mvprune.sweep.verdict import Question, with_differences

MAX_LINES = 5  # of a plot
_OWN = ("method", "density", "seed", "model", "task")  # of every point
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")  # of which the first digits are enough
_NOT_A_LINE = {"density", "seed", "task"}


@dataclass(frozen=True)
class Cell:
    """The results of points that differ only in the seed.

    Attributes:
        group: their values by name; the difference from dense is among them.
        points: by number.
        line: the name of what it is compared as: its method, and what else differs but the density.
        quality: the metric of its task.
        on_front: no other cell of the task is as good and as small, and better in one of both.
        misses: the gates that it misses, each with the value that was compared.
    """

    group: Group
    points: tuple[SweepPoint, ...]
    line: str
    quality: Quality
    on_front: bool
    misses: tuple[tuple[Gate, float | None], ...]

    @property
    def density(self) -> float:
        """The density that was asked for; 1: a small dense model."""
        return self.points[0].target_density

    @property
    def is_dense(self) -> bool:
        """Whether nothing was to be pruned."""
        return self.density >= 1

    def stat(self, name: str) -> Stat | None:
        """A value over the seeds that have one."""
        return stat(self.group.values(name))


@dataclass(frozen=True)
class Line:
    """Cells that differ only in the density, by density."""

    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Panel:
    """The results of one task.

    Attributes:
        dense: the metric of the dense model that the small dense models are compared with, over its seeds.
        dense_model: its name.
        dense_bytes: its parameters in fp32; None where no result says it.
        dense_latencies: milliseconds of the dense model, as dense_latency_ms and dense_int8_latency_ms: the least that
            a point measured, None where none did.
        lines: those that are drawn.
        hidden: the names of the others.
        small: the small dense models.
    """

    task: str
    quality: Quality
    dense: Stat | None
    dense_model: str
    dense_bytes: int | None
    dense_latencies: Mapping[str, float | None]
    cells: tuple[Cell, ...]
    lines: tuple[Line, ...]
    hidden: tuple[str, ...]
    small: tuple[Cell, ...]


@dataclass(frozen=True)
class Results:
    """A sweep and its points, arranged.

    Attributes:
        varied: parameter to its values, of those that differ between points.
        panels: one for each task with a result.
        tickets: of a study of lottery tickets; None for other sweeps.
    """

    sweep: SweepRecord
    points: tuple[SweepPoint, ...]
    varied: Mapping[str, tuple[Any, ...]]
    panels: tuple[Panel, ...]
    tickets: TicketResults | None

    @property
    def cells(self) -> list[Cell]:
        """Those of all tasks."""
        return [cell for panel in self.panels for cell in panel.cells]

    @property
    def verdict(self) -> str:
        """The chosen cell."""
        choice = self.sweep.recommendation
        return "recommended" if choice is not None and choice.passed else "closest miss"

    def is_chosen(self, cell: Cell) -> bool:
        """Whether it is the cell of the recommended point or, where none passes all gates, of the closest miss."""
        choice = self.sweep.recommendation
        return choice is not None and any(point.number == choice.point for point in cell.points)

    @property
    def compared(self) -> list[str]:
        """The parameters that differ, without the seed."""
        return [name for name in self.varied if name != "seed"]

    @property
    def ended(self) -> int:
        """How many points have ended."""
        live = {PointState.PENDING, PointState.QUEUED, PointState.RUNNING, PointState.UNSPECIFIED}
        return sum(point.state not in live for point in self.points)


def parameters(point: SweepPoint) -> dict[str, Any]:
    """The parameters of a point: those of its cell, and those that every job has."""
    own = (point.method, point.target_density, point.seed, point.model, point.task)
    return {**dict(zip(_OWN, own, strict=True)), **point.cell}


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a long text, for tables and plots."""
    return text if len(text) <= most else f"{text[:most]}…"


def value_text(value: Any) -> str:
    """A parameter's value, as users write it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value))
    return _DIGEST.sub(r"\1", shown(str(value)))


def arrange(sweep: SweepRecord, points: Iterable[SweepPoint]) -> Results:
    """Arranges the points of a sweep."""
    ordered = tuple(sorted(points, key=lambda point: point.number))
    varied = _varied(sweep, ordered)
    done = [point for point in ordered if point.state == PointState.SUCCEEDED and point.metrics]
    tasks = dict.fromkeys((point.task, point.primary_metric) for point in done)
    panels = tuple(
        _panel(sweep, [point for point in done if (point.task, point.primary_metric) == task], *task) for task in tasks
    )
    return Results(sweep, ordered, varied, panels, tickets_of(sweep, ordered))


def _varied(sweep: SweepRecord, points: Sequence[SweepPoint]) -> dict[str, tuple[Any, ...]]:
    """In the order of the axes; then those of the points beside them."""
    found = [parameters(point) for point in points]
    names = dict.fromkeys(
        [*(axis.parameter for axis in sweep.spec.axes), *_OWN, *(key for one in found for key in one)]
    )
    values = {name: {value_text(one.get(name)): one.get(name) for one in found} for name in names}
    return {name: tuple(texts.values()) for name, texts in values.items() if len(texts) > 1}


def _panel(sweep: SweepRecord, points: list[SweepPoint], task: str, metric: str) -> Panel:
    quality = Quality.of(metric)
    known = f"dense/{metric}"
    own = [point for point in points if point.model == sweep.spec.base.model and known in values_of(point)]
    compared = own or [point for point in points if known in values_of(point)]
    # Points of one model and seed share a baseline: it counts once.
    baselines = {(point.model, point.seed): values_of(point)[known] for point in reversed(compared)}
    dense = stat(list(baselines.values()))
    model = compared[0].model if compared else sweep.spec.base.model
    measured = [values_of(point) for point in points if point.model == model]
    latencies = {
        name: min((values[name] for values in measured if name in values), default=None)
        for name in (DENSE_LATENCY_MS, DENSE_INT8_LATENCY_MS)
    }
    sizes = [point.accounting.dense_bytes for point in compared if point.accounting]
    cells = _cells(sweep, points, quality, dense)
    lines: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda one: one.density):
        if not cell.is_dense:
            lines.setdefault(cell.line, []).append(cell)
    ranked = _best_first([Line(name, tuple(members)) for name, members in lines.items()], quality)
    shown = sorted(ranked[:MAX_LINES], key=lambda line: line.cells[0].points[0].number)
    return Panel(
        task,
        quality,
        dense,
        model,
        sizes[0] if sizes else None,
        latencies,
        tuple(cells),
        tuple(shown),
        tuple(line.name for line in ranked[MAX_LINES:]),
        tuple(cell for cell in cells if cell.is_dense),
    )


def _cells(sweep: SweepRecord, points: list[SweepPoint], quality: Quality, dense: Stat | None) -> list[Cell]:
    by_number = {point.number: point for point in points}
    outcomes = [Outcome(one.number, parameters(one), _values(one, quality, dense)) for one in points]
    found = groups(with_differences(outcomes))  # gates are about them
    best = front(found, Question().objectives_for(quality.metric))
    differing = _differing([point for point in points if point.target_density < 1])
    cells = []
    for group in found:
        members = tuple(by_number[outcome.number] for outcome in group.outcomes)
        misses = missed(group, sweep.spec.gates, worst=sweep.spec.seeds == "worst")
        name = _line_name(members[0], differing)
        cells.append(Cell(group, members, name, quality, any(group is one for one in best), misses))
    return cells


def _values(point: SweepPoint, quality: Quality, dense: Stat | None) -> dict[str, float]:
    """With the difference from dense: of a pruned model, from the dense model that it was pruned from; of a small dense
    model, from the one that the others were pruned from."""
    values = values_of(point)
    found, own = values.get(f"eval/{quality.metric}"), values.get(f"dense/{quality.metric}")
    if found is None:
        return values
    if point.target_density >= 1:
        own = dense.mean if dense else None
    elif f"delta/{quality.metric}" in values:
        return values | {DIFFERENCE: values[f"delta/{quality.metric}"]}
    return values if own is None else values | {DIFFERENCE: found - own}


def _differing(points: Sequence[SweepPoint]) -> list[str]:
    """The parameters that lines differ in, beside the method."""
    found = [parameters(point) for point in points]
    names = dict.fromkeys(key for one in found for key in one if key not in _NOT_A_LINE and key != "method")
    return [name for name in names if len({value_text(one.get(name)) for one in found}) > 1]


def _line_name(point: SweepPoint, differing: Sequence[str]) -> str:
    if point.target_density >= 1:
        in_int8 = ", int8 activations" if point.cell.get("activations") == "int8" else ""
        return f"dense {shown(point.model)}{in_int8}"
    found = parameters(point)
    words = [f"{name} {value_text(found[name])}" for name in differing if found.get(name) is not None]
    return ", ".join([point.method, *words])


def _best_first(lines: list[Line], quality: Quality) -> list[Line]:
    """By how much a line is behind the best one, on average over its densities."""
    name, sign = f"eval/{quality.metric}", -1.0 if quality.is_loss else 1.0
    best: dict[float, float] = {}
    for cell in (cell for line in lines for cell in line.cells):
        if (value := cell.stat(name)) is not None:
            best[cell.density] = max(best.get(cell.density, -math.inf), sign * value.mean)

    def behind(line: Line) -> tuple[float, float]:
        known = [(best[cell.density], sign * value.mean) for cell in line.cells if (value := cell.stat(name))]
        if not known:
            return math.inf, math.inf
        return statistics.fmean(top - mine for top, mine in known), -statistics.fmean(mine for _, mine in known)

    return sorted(lines, key=behind)
