"""Reads the evaluations that decide about an early stop: domain/early_stop.py."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from mvprune.data.run_length import default_cooldown
from mvprune.data.tasks import LOSSES, get_task
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.db import sweep_records
from mvprune_service.db.tables.attempts import METRICS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.sweeps import PointRow
from mvprune_service.domain.early_stop import Curve, hopeless
from mvprune_service.domain.run_length import preset_of
from mvprune_service.domain.sweeping import PointState

_PRUNING = "pruning"  # the phase whose evaluations count


def hopeless_points(conn: Connection, uid: str, spec: sweep_pb2.SweepSpec, points: Sequence[PointRow]) -> list[int]:
    """The numbers of the running points that cannot become the best of their density any more."""
    running = {point.number: point for point in points if point.state is PointState.RUNNING}
    ended = {point.number: point for point in points if point.state is PointState.SUCCEEDED and point.result}
    if not running or not ended:
        return []
    stored = sweep_records.specs_of(conn, uid, [*running, *ended])
    specs = {number: job_pb2.CompressionSpec.FromString(found) for number, found in stored.items()}
    densities = {specs[number].target_density for number in running}
    compared = running | {number: point for number, point in ended.items() if specs[number].target_density in densities}
    metric = get_task(spec.base.task, spec.base.metric).primary_metric
    sign = -1.0 if metric in LOSSES else 1.0
    jobs = [point.job_uid for point in compared.values() if point.job_uid is not None]
    evaluations, totals = _evaluations(conn, jobs, f"{_PRUNING}/{metric}"), _total_steps(conn, jobs)
    curves = {}
    for number, point in compared.items():
        steps = evaluations.get(point.job_uid, {})
        total = max(steps, default=0) if number in ended else totals.get(point.job_uid, 0)
        since = (1 - _cooldown(specs[number])) * total
        values = {step / total: sign * value for step, value in steps.items() if total and step >= since}
        final = point.result["metrics"].get(f"eval/{metric}") if point.result else None
        curves[number] = Curve(specs[number].target_density, values, None if final is None else sign * final)
    return hopeless({number: curves[number] for number in running}, [curves[n] for n in compared if n in ended])


def _evaluations(conn: Connection, jobs: Sequence[str], metric: str) -> dict[str | None, dict[int, float]]:
    """By job, the metric after each step at which it was evaluated. The last evaluation of a job that has ended is that
    of its last step."""
    rows = select(METRICS.c.job_uid, METRICS.c.step, METRICS.c.value)
    found: dict[str | None, dict[int, float]] = {}
    for row in conn.execute(rows.where(METRICS.c.job_uid.in_(jobs), METRICS.c.metric == metric)):
        found.setdefault(row.job_uid, {})[row.step] = row.value
    return found


def _total_steps(conn: Connection, jobs: Sequence[str]) -> dict[str | None, int]:
    """By job that is pruning now, the steps that this takes."""
    rows = conn.execute(select(JOBS.c.uid, JOBS.c.progress).where(JOBS.c.uid.in_(jobs)))
    progress = {row.uid: job_pb2.Progress.FromString(row.progress or b"") for row in rows}
    return {uid: one.total_steps for uid, one in progress.items() if one.phase == _PRUNING}


def _cooldown(spec: job_pb2.CompressionSpec) -> float:
    options = getattr(spec, str(spec.WhichOneof("method")))
    has_schedule = "schedule" in options.DESCRIPTOR.fields_by_name and options.schedule.HasField("cooldown")
    return float(options.schedule.cooldown) if has_schedule else default_cooldown(preset_of(spec.training))
