"""What a sweep will take, from jobs like its jobs that have finished."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, select

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import teachers
from mvprune_service.db.models import JOBS
from mvprune_service.db.statements import fetch_all
from mvprune_service.domain.machine import JobState

_LOOKED_AT = 12  # finished jobs, the newest first


class _TimeRow(NamedTuple):
    start_us: int | None
    end_us: int | None
    teacher_key: str | None


def estimate(
    conn: Connection, project: str, specs: Sequence[job_pb2.CompressionSpec], most_jobs: int, gpus: float
) -> sweep_pb2.SweepEstimate:
    """Jobs, baselines, and their time.

    Args:
        specs: of its points; at least one.
        most_jobs: how many jobs there are at most.
        gpus: of each job.
    """
    dense = {teachers.digest(teachers.dense_spec(spec)) for spec in specs if teachers.trains(spec)}
    jobs = f"{most_jobs:,} job{'s' if most_jobs != 1 else ''}"
    text = f"{jobs} + {len(dense):,} baseline{'s' if len(dense) != 1 else ''}"
    result = sweep_pb2.SweepEstimate(jobs=most_jobs, baselines=len(dense))
    found = select(JOBS.c.start_us, JOBS.c.end_us, JOBS.c.teacher_key).where(
        JOBS.c.project == project,
        JOBS.c.task == specs[0].task,
        JOBS.c.model == specs[0].model,
        JOBS.c.state == JobState.SUCCEEDED,
    )
    rows = fetch_all(conn, _TimeRow, found.order_by(JOBS.c.create_us.desc()).limit(_LOOKED_AT))
    seconds = [(row.end_us - row.start_us) / SECOND for row in rows if row.start_us and row.end_us]
    if not seconds:
        result.text = f"{text}; no job with this model and task has finished yet, so the time is not known"
        return result
    typical = statistics.median(seconds)
    total = typical * (most_jobs + len(dense))
    result.runtime.FromMilliseconds(round(1000 * total))
    result.gpu_hours = total * gpus / 3600
    result.measured_jobs = len(seconds)
    hours = f"{total / 3600:.1f} h" if total >= 3600 else f"{total / 60:.1f} min"
    gpu = f", {result.gpu_hours:.1f} GPU h" if gpus else ""
    result.text = (
        f"{text}; about {hours} of work{gpu} at {typical:.0f} s each (median of the last {len(seconds)} jobs with this "
        "model and task)"
    )
    return result
