"""Sweeps and their points, in words without a form: a terminal and a page show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mvprune.common.metrics import bounds_text
from mvprune.common.units import age, duration, percent, size, timestamp
from mvprune.sources.schemes import shown
from mvprune.sweep.analysis import Group, Outcome, groups
from mvprune.sweep.tickets.study import STRATEGY

if TYPE_CHECKING:
    from mvprune.client.sweep_models import SweepPoint, SweepRecord, SweepSpec

LIST_COLUMNS = ("SWEEP", "STATE", "POINTS", "FAILED", "TASK", "NAME", "AGE", "RESULT")
_SEED = "seed"
_SPEED = {"LATENCY": ("latency_ms", " ms"), "VS INT8": ("int8_latency_ratio", "x")}
"""Columns of a sweep whose latency is measured: metric and unit."""
_WORDS = {
    "WAITING_FOR_QUOTA": "waits until the project's queue has room",
    "BUDGET_USED": "the budget is used: no further job is created",
    "TOO_MANY_FAILURES": "more points failed than the policy allows",
    "NOTHING_SUCCEEDED": "no point has a result",
    "NO_POINT_PASSES": "no point passes the gates",
}


class Grid(NamedTuple):
    """A table: its headings, and rows of cells."""

    columns: list[str]
    rows: list[list[str]]


def state(sweep: SweepRecord) -> str:
    """SUCCEEDED: no point passes the gates (NO_POINT_PASSES)"""
    reason = sweep.state_reason
    if not reason:
        return str(sweep.state)
    return f"{sweep.state}: {_WORDS[reason]} ({reason})" if reason in _WORDS else f"{sweep.state} ({reason})"


def done(sweep: SweepRecord) -> int:
    """How many points have ended."""
    counts = sweep.counts
    return counts.succeeded + counts.failed + counts.cancelled + counts.skipped + counts.deleted


def counts(sweep: SweepRecord) -> str:
    """12 of 40 points: 10 succeeded (2 reused), 2 failed, 4 running, 24 pending"""
    found = sweep.counts
    reused = f" ({found.reused} reused)" if found.reused else ""
    parts = [f"{found.succeeded} succeeded{reused}"] if found.succeeded else []
    names = ("failed", "cancelled", "skipped", "deleted", "running", "queued", "pending")
    parts += [f"{number} {name}" for name in names if (number := getattr(found, name))]
    return f"{done(sweep)} of {found.total} points" + (f": {', '.join(parts)}" if parts else "")


def fields(sweep: SweepRecord) -> list[tuple[str, str]]:
    """All that matters of a sweep, but its result: names and values; "": there is nothing to say."""
    cost = sweep.cost
    created = f"{timestamp(sweep.create_time)} UTC, {age(sweep.create_time)} ago" if sweep.create_time else ""
    return [
        ("sweep", sweep.id),
        ("name", sweep.display_name),
        ("state", state(sweep)),
        ("points", counts(sweep)),
        ("compares", compared(sweep.spec)),
        ("gates", _gates(sweep)),
        ("result", recommended(sweep)),
        ("cost", _cost(sweep) if cost.runtime else ""),
        ("labels", ", ".join(f"{key}={value}" for key, value in sorted(sweep.labels.items()))),
        ("creator", "" if sweep.creator == "local" else sweep.creator),
        ("created", created),
        *(("note", note) for note in sweep.notes),
    ]


def compared(spec: SweepSpec) -> str:
    """3 density x 2 method, by grid, of ./model on sst2"""
    axes = [
        f"{len(axis.values)} {axis.parameter}" if axis.values else f"a range of {axis.parameter}" for axis in spec.axes
    ]
    more = [f"{len(spec.points)} more points"] if spec.points else []
    of = [f"of {shown(spec.base.model)}"] if spec.base.model else []
    on = [f"on {spec.base.task}"] if spec.base.task else []
    options = spec.strategy_options
    words = {
        "search": f"{options.get('way', 'search')} to the smallest {options.get('goal', 'density')}",
        STRATEGY: "lottery tickets",
    }
    by = words.get(spec.strategy, f"by {spec.strategy}")
    return ", ".join(filter(None, [" x ".join(axes), *more, by, " ".join([*of, *on])]))


def recommended(sweep: SweepRecord) -> str:
    """The recommended point, or the closest miss, in words."""
    chosen = sweep.recommendation
    if chosen is None:
        return ""
    return f"point {chosen.point}: {chosen.text}" if chosen.passed else f"none passes; the closest miss: {chosen.text}"


def front_grid(points: Sequence[SweepPoint]) -> Grid:
    """The points that no other one is better than: means over seeds."""
    found = groups(outcome(point) for point in points)
    speed = _measured_speed(points)
    names = list(dict.fromkeys(name for group in found for name in group.cell))
    primary = next((point.primary_metric for point in points if point.primary_metric), "")
    rows = [
        [
            ", ".join(str(one.number) for one in group.outcomes),
            *(_cell(name, group.cell.get(name, "")) for name in names),
            _mean(group, f"eval/{primary}"),
            _mean(group, f"delta/{primary}", "+") + _bounds(group, primary),
            "" if (density := group.mean("density")) is None else percent(density),
            size(round(group.mean("bytes") or 0)),
            *(_time(group.mean(metric), unit) for metric, unit in speed.values()),
            str(len(group.outcomes)),
        ]
        for group in found
    ]
    heads = [*(name.upper() for name in names), primary.upper() or "METRIC"]
    return Grid(["FRONT", *heads, "DIFFERENCE", "REACHED", "BYTES", *speed, "N"], rows)


def point_grid(points: Sequence[SweepPoint]) -> Grid:
    """One point a row; N is how many seeds of its cell have a result."""
    names = list(dict.fromkeys(name for point in points for name in point.cell))
    primary = next((point.primary_metric for point in points if point.primary_metric), "")
    seeds = {
        one.number: len(group.outcomes)
        for group in groups(outcome(point) for point in points if point.accounting)
        for one in group.outcomes
    }
    above = ["above_constant"] * any("above_constant" in point.metrics for point in points)
    speed = _measured_speed(points)
    rows = [
        [
            f"{point.number}{' *' if point.optimal else ''}",
            *(_cell(name, point.cell.get(name, "")) for name in names),
            _point_state(point),
            _metric(point, f"eval/{primary}"),
            _metric(point, f"delta/{primary}", "+") + bounds_text(point.metrics, primary),
            *(_metric(point, name, "+") for name in above),
            percent(point.accounting.density) if point.accounting else "",
            size(point.total_bytes) if point.accounting else "",
            *(_time(point.metrics.get(metric), unit) for metric, unit in speed.values()),
            str(seeds.get(point.number, "")),
        ]
        for point in points
    ]
    heads = [name.upper() for name in names]
    measured = [primary.upper() or "METRIC", "DIFFERENCE", *(name.upper() for name in above)]
    return Grid(["#", *heads, "STATE", *measured, "REACHED", "BYTES", *speed, "N"], rows)


def list_rows(sweeps: Sequence[SweepRecord]) -> list[list[str]]:
    """One sweep a row: the cells below LIST_COLUMNS."""
    return [
        [
            one.id,
            str(one.state),
            f"{done(one)}/{one.counts.total}",
            str(one.counts.failed or ""),
            one.spec.base.task,
            one.display_name,
            age(one.create_time),
            one.recommendation.text if one.recommendation else "",
        ]
        for one in sweeps
    ]


def outcome(point: SweepPoint) -> Outcome:
    """The result of a point, with what its accounting says."""
    counted = point.accounting
    own = {"bytes": float(point.total_bytes), "density": counted.density} if counted else {}
    return Outcome(point.number, point.cell, {**point.metrics, **own})


def _gates(sweep: SweepRecord) -> str:
    from mvprune.spec.gates import gate_text  # most sweeps have none

    seeds = " (the worst of the seeds)" if sweep.spec.gates and sweep.spec.seeds == "worst" else ""
    return ", ".join(map(gate_text, sweep.spec.gates)) + seeds


def _cost(sweep: SweepRecord) -> str:
    cost = sweep.cost
    parts = [f"{duration(cost.runtime or 0)} of jobs", f"{cost.gpu_hours:.1f} GPU hours" if cost.gpu_hours else ""]
    if cost.baseline_runtime:
        parts.append(f"{duration(cost.baseline_runtime)} of it for {sweep.counts.baselines} shared baselines")
    if cost.saved_runtime:
        parts.append(f"{duration(cost.saved_runtime)} saved at most by sharing them")
    return ", ".join(filter(None, parts))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return percent(value) if name == "density" and isinstance(value, float) else str(value)


def _point_state(point: SweepPoint) -> str:
    reason = point.failure.reason if point.failure else point.state_reason
    if point.reused:
        return f"{point.state} (reused)"
    return f"{point.state} ({reason})" if reason else str(point.state)


def _metric(point: SweepPoint, key: str, sign: str = "") -> str:
    return f"{point.metrics[key]:{sign}.4f}" if key in point.metrics else ""


def _measured_speed(points: Sequence[SweepPoint]) -> dict[str, tuple[str, str]]:
    return {column: of for column, of in _SPEED.items() if any(of[0] in point.metrics for point in points)}


def _time(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g}{unit}"


def _mean(group: Group, metric: str, sign: str = "") -> str:
    mean, deviation = group.mean(metric), group.deviation(metric)
    if mean is None:
        return ""
    return f"{mean:{sign}.4f}" + (f" ± {deviation:.4f}" if deviation is not None else "")


def _bounds(group: Group, metric: str) -> str:
    best, *others = group.outcomes
    return "" if others else bounds_text(best.values, metric)
