"""The facts of a sweep's report as tables and sentences, which the page and the Markdown have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mvprune.artifact.comparison import flat
from mvprune.client.sweep_models import PointState, SweepPoint
from mvprune.common.metrics import INT8_LATENCY_RATIO, bounds, bounds_text
from mvprune.common.units import duration, percent, size
from mvprune.spec.gates import gate_text
from mvprune.sweep.report.crossings import crossings
from mvprune.sweep.report.details import Overlap, PointDetails, overlaps
from mvprune.sweep.report.quantities import COSTS, DIFFERENCE, LATENCY, Quality, Stat, stat, values_of
from mvprune.sweep.report.results import Cell, Results, parameters, shortened, value_text
from mvprune.sweep.tickets.results import TicketResults
from mvprune.sweep.tickets.text import EXPLANATION, Grid, matrices, ticket_table

CSV_FILE = "report.csv"

_COSTS = ("kept", *(cost.column for cost in COSTS[1:]), "× int8")  # "density" is the parameter
_MAX_COLUMNS = 8  # of parameters
_MAX_FAILURES, _MAX_MESSAGE = 30, 200
_MAX_PARAMETERS, _MAX_VALUES, _MAX_CROSSINGS, _MAX_BLOCKS = 100, 12, 60, 64
_NO_DETAILS = (
    "No artifact was given for this part. mvpctl sweep report fetches the artifact of the recommended "
    "point, and one of each other method at its density."
)


@dataclass(frozen=True)
class Table:
    """A table, or a sentence where there is none.

    Attributes:
        numbers: which columns are flush right.
        note: below the table: what is left out, and what its columns mean.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[bool, ...]
    note: str = ""


def command(results: Results) -> str:
    """How to get the recommended artifact, or that of the closest miss."""
    choice = results.sweep.recommendation
    missed = [one.job for one in results.points if choice and not choice.passed and one.number == choice.point]
    if missed:
        return f"mvpctl download {missed[0].rpartition('/')[2]} DIR"
    return f"mvpctl sweep download {results.sweep.id} DIR --recommended"


def title(results: Results) -> str:
    """Of the report."""
    return shortened(results.sweep.display_name, 200) or results.sweep.id


def standing(results: Results) -> str:
    """How far the sweep is."""
    sweep, total = results.sweep, results.sweep.counts.total
    why = f" ({sweep.state_reason})" if sweep.state_reason else ""
    if sweep.state.is_terminal:
        with_result = f"{sweep.counts.succeeded} of {total} points have a result"
        return f"{sweep.state}{why}: {with_result}."
    time = f"as of {sweep.update_time:%Y-%m-%d %H:%M} UTC, " if sweep.update_time else ""
    return f"Not finished, {sweep.state}{why}: {time}{results.ended} of {total} points have ended. Results may change."


def recommendation(results: Results) -> str:
    """In words; "" until there is a result."""
    if results.tickets is not None and results.tickets.winners:
        return f"Winning tickets: {results.tickets.winners}"
    found = results.sweep.recommendation
    if found is None:
        return "No point has a result yet." if not results.sweep.state.is_terminal else "No point has a result."
    return f"{'Recommended' if found.passed else 'Closest miss'}: {found.text}"


def cells(results: Results, most: int) -> Table:
    """Means over seeds, a row a cell."""
    shown = results.cells
    order = sorted(range(len(shown)), key=lambda index: not (results.is_chosen(shown[index])))
    thinned = sorted(_thinned(order, [cell.on_front for cell in shown], most))
    names = results.compared[:_MAX_COLUMNS]
    gates = bool(results.sweep.spec.gates)
    columns = (*map(shortened, names), "n", "metric", "value", "difference", "", *_COSTS)
    rows = [_cell_row(results, shown[index], names, gates) for index in thinned]
    left = _left_out(len(shown), len(rows), "cells") + _columns_left_out(results.compared)
    note = f"Mean ± sample standard deviation over n seeds; costs: where it is above 1 %. {_units(results)}{left}"
    return Table(columns, tuple(rows), (*_flags(len(names)), True, False, True, True, False, *[True] * 6), note)


def points(results: Results, most: int) -> Table:
    """Raw values, a row a point."""
    known = [*results.varied][:_MAX_COLUMNS]
    best = {point.number for cell in results.cells if cell.on_front for point in cell.points}
    order = list(range(len(results.points)))
    thinned = _thinned(order, [point.number in best for point in results.points], most)
    columns = (
        "point",
        *map(shortened, known),
        "state",
        "metric",
        "value",
        "dense",
        "difference",
        *_COSTS,
        "time",
    )
    differences = {
        outcome.number: outcome.values.get(DIFFERENCE) for cell in results.cells for outcome in cell.group.outcomes
    }
    rows = [_point_row(results.points[index], known, differences) for index in sorted(thinned)]
    left = _left_out(len(results.points), len(rows), "points") + _columns_left_out(list(results.varied))
    note = f"All metrics and parameters of every point, not rounded, are in {CSV_FILE}.{left}"
    return Table(columns, tuple(rows), (True, *_flags(len(known)), False, False, *[True] * 10), note)


def tickets(found: TicketResults) -> list[tuple[str, Table]]:
    """The table of tickets and controls, and the matrices of transfer, with their titles."""
    parts = [("Tickets and controls", _of_grid(ticket_table(found), 3, EXPLANATION))]
    if found.transfer_density is not None:
        kept = percent(found.transfer_density)
        values, differences = (_of_grid(grid, 1) for grid in matrices(found))
        parts.append((f"Transfer at {kept} kept", values))
        parts.append(("Transfer: differences from the same task", differences))
    return parts


def _of_grid(grid: Grid, texts: int, note: str = "") -> Table:
    """With columns of numbers after the first ones, which are texts."""
    flush = tuple(index >= texts for index in range(len(grid.columns)))
    return Table(grid.columns, grid.rows, flush, note)


def dense(results: Results) -> Table | str:
    """The dense model of each task."""
    rows = tuple(
        (
            panel.task,
            panel.dense_model,
            panel.quality.metric,
            panel.quality.text(panel.dense),
            str(panel.dense.n),
            _known(size, panel.dense_bytes),
            *(_known(LATENCY.text, time) for time in panel.dense_latencies.values()),
        )
        for panel in results.panels
        if panel.dense
    )
    if not rows:
        return "No result states the metric of a dense model."
    columns = ("task", "model", "metric", "value", "n", "bytes in fp32", "torch fp32", "torch int8")
    return Table(columns, rows, (False, False, False, *[True] * 5))


def crossing_sentences(results: Results) -> list[str]:
    """Where lines cross, by task; nothing where there is only one."""
    found = [
        f"{panel.task}: {one.text}" if len(results.panels) > 1 else one.text
        for panel in results.panels
        for one in crossings(panel)
    ]
    more = [f"… and {len(found) - _MAX_CROSSINGS} more, in report.json."] if len(found) > _MAX_CROSSINGS else []
    return [*found[:_MAX_CROSSINGS], *more]


def blocks(results: Results, details: Mapping[int, PointDetails]) -> Table | str:
    """Density by layer, a column a point."""
    if not details:
        return _NO_DETAILS
    found = {number: one.blocks() for number, one in sorted(details.items())}
    names = list(dict.fromkeys(name for one in found.values() for name in one))[:_MAX_BLOCKS]
    rows = [
        (name or "(outside of all layers)", *(_known(percent, one.get(name)) for one in found.values()))
        for name in names
    ]
    return Table(("layer", *detailed_names(results, found)), tuple(rows), (False, *[True] * len(found)))


def overlap(results: Results, details: Mapping[int, PointDetails]) -> Table | str:
    """Pairs of points, and how many weights they have in common."""
    if not details:
        return _NO_DETAILS
    found = overlaps(details)
    if not found:
        only = "; only their manifests were given" if len(details) > 1 else ""
        return f"The overlap needs the artifacts of two methods or more{only}."
    names = dict(zip(sorted(details), detailed_names(results, sorted(details)), strict=True))
    rows = tuple(_overlap_row(names, one) for one in found)
    note = (
        "Jaccard index: weights that both keep, of those that at least one keeps. By chance: the same for masks drawn "
        "at random with as many kept weights in each matrix."
    )
    return Table(("", "", "overlap", "by chance"), rows, (False, False, True, True), note)


def detailed_names(results: Results, numbers: Sequence[int] | Mapping[int, Any]) -> list[str]:
    """Points as headings: method, density and number."""
    known = {point.number: point for point in results.points}
    return [f"{shortened(known[n].method)}, {percent(known[n].target_density)} (point {n})" for n in numbers]


def failures(results: Results) -> Table | str:
    """Points without a result by the reason."""
    found: dict[tuple[str, str], list[SweepPoint]] = {}
    for point in results.points:
        if point.failure:
            found.setdefault((point.state, point.failure.reason), []).append(point)
        elif point.state in (PointState.FAILED, PointState.CANCELLED, PointState.SKIPPED, PointState.DELETED):
            found.setdefault((point.state, point.state_reason), []).append(point)
    if not found:
        return "No point has failed, was cancelled, skipped or deleted."
    rows = [
        (state, reason, str(len(members)), _numbers(members), _message(members[0]))
        for (state, reason), members in sorted(found.items(), key=lambda one: -len(one[1]))[:_MAX_FAILURES]
    ]
    return Table(
        ("state", "reason", "number", "points", "message of the first"), tuple(rows), (False, False, True, False, False)
    )


def cost(results: Results) -> Table:
    """Time, GPU hours, what was shared and reused."""
    spent, counts, sweep = results.sweep.cost, results.sweep.counts, results.sweep
    elapsed = (sweep.end_time - sweep.create_time).total_seconds() if sweep.end_time and sweep.create_time else None
    of_it = "" if spent.baseline_runtime is None else f", {duration(spent.baseline_runtime)} of the compute time"
    rows = [
        ("elapsed", _known(duration, elapsed)),
        ("compute time of all attempts", _known(duration, spent.runtime)),
        ("GPU hours", f"{spent.gpu_hours:.2f}"),
        ("shared dense baselines", f"{counts.baselines}{of_it}"),
        ("saved at most by sharing them", _saved(spent.runtime, spent.saved_runtime)),
        ("results reused from earlier jobs", f"{counts.reused} of {counts.succeeded}"),
    ]
    return Table(("", ""), tuple(row for row in rows if row[1]), (False, False))


def differed(results: Results) -> Table | str:
    """The parameters that differ, with their values."""
    rows = []
    for name, values in results.varied.items():
        texts = [shortened(value_text(value)) for value in values]
        more = f", … ({len(texts)} values)" if len(texts) > _MAX_VALUES else ""
        rows.append((shortened(name), ", ".join(texts[:_MAX_VALUES]) + more))
    if not rows:
        return "All points have the same parameters."
    return Table(("parameter", "values"), tuple(rows[:_MAX_PARAMETERS]), (False, False))


def same(results: Results) -> Table:
    """The options that all points share, and what was asked of them. Defaults are left out."""
    spec = results.sweep.spec
    plain = flat(dataclasses.asdict(spec.base))
    names = {"target_density": "density"}
    rows = [
        (shortened(names.get(name, name)), shortened(value_text(value), _MAX_MESSAGE))
        for name, value in plain.items()
        if value not in (None, "", (), {}, False) and names.get(name, name.rpartition(".")[2]) not in results.varied
    ]
    strategy = ", ".join(f"{name} {value_text(value)}" for name, value in spec.strategy_options.items())
    rows += [
        ("strategy", f"{spec.strategy}{f' ({strategy})' if strategy else ''}"),
        ("gates", ", ".join(map(gate_text, spec.gates)) or "none"),
        ("of several seeds", f"the {spec.seeds} is compared with the gates"),
        ("objectives", ", ".join(f"{one.direction} {one.metric}" for one in spec.objectives)),
    ]
    return Table(("parameter", "value"), tuple(row for row in rows if row[1])[:_MAX_PARAMETERS], (False, False))


def _cell_row(results: Results, cell: Cell, names: Sequence[str], gates: bool) -> tuple[str, ...]:
    known, quality, dense = parameters(cell.points[0]), cell.quality, cell.is_dense
    marks = [
        results.verdict if results.is_chosen(cell) else "",
        "front" if cell.on_front else "",
        "misses " + ", ".join(gate_text(gate) for gate, _ in cell.misses) if gates and cell.misses else "",
    ]
    return (
        *("none (dense)" if dense and name == "method" else shortened(value_text(known.get(name))) for name in names),
        str(len(cell.points)),
        quality.metric,
        quality.text(cell.stat(f"eval/{quality.metric}")),
        quality.difference(cell.stat(DIFFERENCE)) + _within(cell.points, quality),
        "; ".join(mark for mark in marks if mark),
        *(_cost_text(one.text, cell.stat(one.name)) for one in COSTS),
        _cost_text("{:.2f}".format, cell.stat(INT8_LATENCY_RATIO)),
    )


def _point_row(point: SweepPoint, names: Sequence[str], differences: Mapping[int, float | None]) -> tuple[str, ...]:
    known, values, quality = parameters(point), values_of(point), Quality.of(point.primary_metric)
    state = f"{point.state} (reused)" if point.reused else str(point.state)

    def one(name: str) -> Stat | None:
        return stat([values[name]] if name in values else [])

    difference = differences.get(point.number)
    return (
        str(point.number),
        *(shortened(value_text(known.get(name))) for name in names),
        state,
        quality.metric,
        quality.text(one(f"eval/{quality.metric}")),
        quality.text(one(f"dense/{quality.metric}")),
        quality.difference(stat([] if difference is None else [difference])) + _within([point], quality),
        *(_cost_text(by.text, one(by.name)) for by in COSTS),
        _cost_text("{:.2f}".format, one(INT8_LATENCY_RATIO)),
        _known(duration, point.runtime),
    )


def _within(points: Sequence[SweepPoint], quality: Quality) -> str:
    """The interval of the difference of one point; "" for several seeds, whose mean has none."""
    first, *others = points
    return "" if others else bounds_text(first.metrics, quality.metric, scale=quality.scale, digits=2)


def _thinned(order: Sequence[int], important: Sequence[bool], most: int) -> list[int]:
    """At most so many: the first in order and the important ones, then others at equal distances."""
    if len(order) <= most:
        return list(order)
    first = [order[0], *(index for index in order[1:] if important[index])][:most]
    rest, room = [index for index in order if index not in set(first)], most - len(first)
    return first + [rest[number * len(rest) // room] for number in range(room)]


def _left_out(total: int, shown: int, what: str) -> str:
    if shown == total:
        return ""
    return f" {shown} of {total} {what} are shown, those of the front among them; all are in {CSV_FILE}."


def _columns_left_out(names: Sequence[str]) -> str:
    more = len(names) - _MAX_COLUMNS
    return f" {more} more parameters differ; they are in {CSV_FILE}." if more > 0 else ""


def _units(results: Results) -> str:
    losses = sorted({panel.quality.metric for panel in results.panels if panel.quality.is_loss})
    fractions = any(not panel.quality.is_loss for panel in results.panels)
    parts = ["× int8: times as fast as the unpruned model in torch's dynamic int8."]
    parts += ["Metrics are in %, differences from dense in points of it."] if fractions else []
    if any(bounds(point.metrics, point.primary_metric) for point in results.points):
        parts.append(
            "In brackets: the 95 % confidence interval of the difference on the validation examples (paired bootstrap)."
        )
    parts += [f"Of {name} less is better; its difference has its own unit." for name in losses]
    if any(panel.small for panel in results.panels):
        of = ", ".join(dict.fromkeys(panel.dense_model for panel in results.panels))
        parts.append(f"The difference of a small dense model is that from dense {of}.")
    return " ".join(parts)


def _overlap_row(names: Mapping[int, str], one: Overlap) -> tuple[str, ...]:
    if one.jaccard is None:
        return names[one.first], names[one.second], "other matrices", ""
    return names[one.first], names[one.second], _known(percent, one.jaccard), _known(percent, one.chance)


def _cost_text(text: Any, value: Stat | None) -> str:
    """The deviation of a cost is left out where it is below a hundredth of the mean: the bytes of seeds are alike."""
    if value is None:
        return ""
    spread = value.deviation or 0.0
    return f"{text(value.mean)} ± {text(spread)}" if spread > 0.01 * value.mean else str(text(value.mean))


def _known(text: Callable[[Any], str], value: float | None) -> str:
    return "" if value is None else text(value)


def _saved(spent: float | None, saved: float | None) -> str:
    if saved is None:
        return ""
    times = f": without it up to {(spent + saved) / spent:.2f} times as much compute time" if spent else ""
    return f"{duration(saved)}{times}"


def _message(point: SweepPoint) -> str:
    return shortened(point.failure.message, _MAX_MESSAGE) if point.failure else ""


def _numbers(members: Sequence[SweepPoint]) -> str:
    shown = ", ".join(str(point.number) for point in members[:_MAX_VALUES])
    return f"{shown}, …" if len(members) > _MAX_VALUES else shown


def _flags(count: int) -> list[bool]:
    return [False] * count
