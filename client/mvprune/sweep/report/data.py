"""report.csv and report.json: every value of a sweep, not rounded, for programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mvprune.client.models import Accounting
from mvprune.client.sweep_models import SweepPoint
from mvprune.spec.gates import gate_text
from mvprune.sweep.report import tables
from mvprune.sweep.report.crossings import crossings
from mvprune.sweep.report.details import PointDetails, overlaps
from mvprune.sweep.report.quantities import DIFFERENCE, stat
from mvprune.sweep.report.results import Cell, Panel, Results, parameters

_COUNTS = tuple(field.name for field in dataclasses.fields(Accounting))
_FIRST = ("point", "state", "state_reason", "optimal", "recommended", "reused")
_LAST = ("total_bytes", "runtime", "gpu_hours", "job", "artifact", "failure_reason", "failure_message")


def sweep_csv(results: Results) -> str:
    """A row a point: its state, all parameters, all metrics, the counts of its model, what it took. The columns of the
    parameters are sorted by name, and so are those of the metrics. `density` is the parameter; the density that was
    reached is `reached_density`."""
    names = sorted({name for point in results.points for name in parameters(point)})
    metrics = sorted({name for point in results.points for name in point.metrics})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_FIRST, *names, "primary_metric", *metrics, DIFFERENCE, *map(_column, _COUNTS), *_LAST])
    differences = _differences(results)
    for point in results.points:
        known = parameters(point)
        counts = vars(point.accounting) if point.accounting else {}
        writer.writerow(
            [
                *_first(results, point).values(),
                *(_csv(known.get(name)) for name in names),
                point.primary_metric,
                *(_csv(point.metrics.get(name)) for name in metrics),
                _csv(differences.get(point.number)),
                *(_csv(counts.get(name)) for name in _COUNTS),
                *(_csv(value) for value in _last(point).values()),
            ]
        )
    return text.getvalue()


def sweep_json(results: Results, details: Mapping[int, PointDetails]) -> str:
    """Everything that the page shows, and what it leaves out. Numbers that are not finite are null."""
    sweep = results.sweep
    choice = sweep.recommendation
    value = {
        "sweep": {
            "name": sweep.name,
            "display_name": sweep.display_name,
            "labels": sweep.labels,
            "state": sweep.state,
            "state_reason": sweep.state_reason,
            "create_time": sweep.create_time,
            "update_time": sweep.update_time,
            "end_time": sweep.end_time,
            "counts": sweep.counts,
            "cost": sweep.cost,
            "notes": sweep.notes,
        },
        "recommendation": None if choice is None else {**vars(choice), "command": tables.command(results)},
        "gates": [gate_text(gate) for gate in sweep.spec.gates],
        "objectives": sweep.spec.objectives,
        "varied": results.varied,
        "base": sweep.spec.base,
        "tickets": results.tickets,
        "tasks": [_panel(panel) for panel in results.panels],
        "cells": [_cell(results, panel, cell) for panel in results.panels for cell in panel.cells],
        "crossings": [{"task": panel.task, **vars(one)} for panel in results.panels for one in crossings(panel)],
        "details": [
            {"point": number, "artifact": one.artifact, "layers": one.layers} for number, one in sorted(details.items())
        ],
        "overlaps": overlaps(details),
        "points": _points(results),
    }
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_lines(one)}" for key, one in value.items()) + "\n}\n"


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "task": panel.task,
        "metric": panel.quality.metric,
        "lower_is_better": panel.quality.is_loss,
        "dense_model": panel.dense_model,
        "dense": panel.dense,
        "dense_bytes": panel.dense_bytes,
        **panel.dense_latencies,
        "lines": [line.name for line in panel.lines],
        "lines_not_drawn": panel.hidden,
    }


def _cell(results: Results, panel: Panel, cell: Cell) -> dict[str, Any]:
    names = sorted({name for outcome in cell.group.outcomes for name in outcome.values})
    values = {name: stat(cell.group.values(name)) for name in names}
    return {
        "task": panel.task,
        "line": cell.line,
        "parameters": cell.group.cell,
        "points": [point.number for point in cell.points],
        "on_front": cell.on_front,
        "recommended": results.is_chosen(cell) and results.verdict == "recommended",
        "misses": [{"gate": gate_text(gate), "compared": value} for gate, value in cell.misses],
        "values": values,
    }


def _points(results: Results) -> list[dict[str, Any]]:
    differences = _differences(results)
    return [
        {
            **_first(results, point),
            "parameters": parameters(point),
            "primary_metric": point.primary_metric,
            "metrics": point.metrics,
            DIFFERENCE: differences.get(point.number),
            "accounting": point.accounting,
            **_last(point),
        }
        for point in results.points
    ]


def _first(results: Results, point: SweepPoint) -> dict[str, Any]:
    choice = results.sweep.recommendation
    chosen = choice.points if choice is not None and choice.passed else ()
    values = (point.number, point.state.value, point.state_reason, point.optimal, point.number in chosen, point.reused)
    return dict(zip(_FIRST, values, strict=True))


def _last(point: SweepPoint) -> dict[str, Any]:
    why = (point.failure.reason, point.failure.message) if point.failure else ("", "")
    values = (point.total_bytes, point.runtime, point.gpu_hours, point.job, point.artifact, *why)
    return dict(zip(_LAST, values, strict=True))


def _differences(results: Results) -> dict[int, float | None]:
    return {outcome.number: outcome.values.get(DIFFERENCE) for cell in results.cells for outcome in cell.group.outcomes}


def _column(count: str) -> str:
    """The column of a count of `Accounting`."""
    return "reached_density" if count == "density" else count


def _csv(value: Any) -> Any:
    """Lists and objects as JSON; nothing where there is nothing."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def _lines(value: Any) -> str:
    """JSON on one line; of a list, one line an entry."""
    plain = _plain(value)
    if isinstance(plain, list) and plain:
        return "[\n" + ",\n".join(_dumped(one) for one in plain) + "\n]"
    return _dumped(plain)


def _dumped(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return _plain(vars(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value
