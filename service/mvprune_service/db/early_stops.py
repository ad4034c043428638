"""Reads the evaluations that decide about an early stop: domain/early_stop.py."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from mvprune.data.tasks import LOSSES, get_task
from mvprune.spec.annotations import default_of
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.db import sweep_records
from mvprune_service.db.models import JOBS, METRICS
from mvprune_service.db.sweep_rows import PointRow
from mvprune_service.domain.early_stop import Curve, hopeless
from mvprune_service.domain.sweeping import PointState

_COOLDOWN = default_of(job_pb2.Schedule.DESCRIPTOR.fields_by_name["cooldown"])
_PRUNING = "pruning"  # the phase whose evaluations count


def hopeless_points(conn: Connection, uid: str, spec: sweep_pb2.SweepSpec, points: Sequence[PointRow]) -> list[int]:
    """The numbers of the running points that cannot become the best of their density any more."""
    metric = get_task(spec.base.task).primary_metric
    running = [point for point in points if point.state is PointState.RUNNING]
    ended = [point for point in points if point.state is PointState.SUCCEEDED and point.result and point.job_uid]
    if not running or not ended:
        return []
    specs = sweep_records.specs_of(conn, uid, [point.number for point in (*running, *ended)])
    sign = -1.0 if metric in LOSSES else 1.0
    curves = {}
    for point in (*running, *ended):
        job_spec = job_pb2.CompressionSpec.FromString(specs[point.number])
        final = point.result["metrics"].get(f"eval/{metric}") if point.result else None
        values = _evaluations(conn, point.job_uid or "", f"{_PRUNING}/{metric}", 1 - _cooldown(job_spec), sign)
        curves[point.number] = Curve(job_spec.target_density, values, None if final is None else sign * final)
    return hopeless(
        {point.number: curves[point.number] for point in running}, [curves[point.number] for point in ended]
    )


def _evaluations(conn: Connection, job_uid: str, metric: str, since: float, sign: float) -> dict[float, float]:
    """Fraction of the steps to the metric, from a fraction on."""
    total = _total_steps(conn, job_uid)
    rows = conn.execute(
        select(METRICS.c.step, METRICS.c.value)
        .where(METRICS.c.job_uid == job_uid, METRICS.c.metric == metric)
        .order_by(METRICS.c.id)
    )
    return {row.step / total: sign * row.value for row in rows if total and row.step >= since * total}


def _total_steps(conn: Connection, job_uid: str) -> int:
    """The steps of the pruning phase: of a job that runs as it reports them, else the last step that it recorded."""
    stored = conn.execute(select(JOBS.c.progress).where(JOBS.c.uid == job_uid)).scalar()
    progress = job_pb2.Progress.FromString(stored) if stored else job_pb2.Progress()
    if progress.phase == _PRUNING and progress.total_steps:
        return progress.total_steps
    loss = METRICS.c.metric == f"{_PRUNING}/loss"
    last = select(METRICS.c.step).where(METRICS.c.job_uid == job_uid, loss).order_by(METRICS.c.step.desc()).limit(1)
    return conn.execute(last).scalar() or 0


def _cooldown(spec: job_pb2.CompressionSpec) -> float:
    options = getattr(spec, str(spec.WhichOneof("method")))
    has_schedule = "schedule" in options.DESCRIPTOR.fields_by_name and options.schedule.HasField("cooldown")
    return float(options.schedule.cooldown) if has_schedule else _COOLDOWN
