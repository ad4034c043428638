"""What jobs will take, from jobs like them that have finished."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, Executable, func, select

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import teachers
from mvprune_service.db.models import JOBS, METRICS
from mvprune_service.db.statements import fetch_all
from mvprune_service.domain.machine import JobState

_LOOKED_AT = 50  # finished jobs, the newest first
_TRAINING = ("dense/loss", "pruning/loss")  # metrics that have a point every few steps of a training


class _FinishedRow(NamedTuple):
    uid: str
    spec: bytes
    start_us: int | None
    end_us: int | None


class _TrainingRow(NamedTuple):
    job_uid: str
    first_step: int
    last_step: int
    first_us: int
    last_us: int


@dataclass(frozen=True)
class _Measured:
    """A finished job.

    Attributes:
        steps: of its longest training; None: not known.
        training: seconds of all its trainings; the rest of `seconds` does not depend on the number of steps.
    """

    uid: str
    spec: job_pb2.CompressionSpec
    seconds: float
    steps: float | None
    training: float

    def seconds_of(self, spec: job_pb2.CompressionSpec) -> float | None:
        """How long a job like this one takes. None: its steps cannot be compared."""
        factor = self._factor(spec)
        return None if factor is None else self.seconds + (factor - 1) * self.training

    def _factor(self, spec: job_pb2.CompressionSpec) -> float | None:
        """How many times as many steps it makes."""
        new, own = spec.training, self.spec.training
        if new.HasField("max_steps"):
            return new.max_steps / self.steps if self.steps else None
        if spec.dataset != self.spec.dataset or own.HasField("max_steps"):
            return None  # the number of examples decides
        if new.HasField("epochs") and own.HasField("epochs"):
            return new.epochs / own.epochs
        same = new.HasField("epochs") == own.HasField("epochs") and new.preset == own.preset
        return 1.0 if same else None


def estimate(
    conn: Connection, project: str, specs: Sequence[job_pb2.CompressionSpec], most_jobs: int, gpus: float
) -> sweep_pb2.SweepEstimate:
    """Jobs, baselines, and their time: seconds a step, as they were measured, for the steps of each job.

    Args:
        specs: of its points; at least one.
        most_jobs: how many jobs there are at most.
        gpus: of each job.
    """
    dense = {teachers.digest(teachers.dense_spec(spec)) for spec in specs if teachers.trains(spec)}
    text = f"{_counted(most_jobs, 'job')} + {_counted(len(dense), 'baseline')}"
    result = sweep_pb2.SweepEstimate(jobs=most_jobs, baselines=len(dense))
    measured, used = _measured(conn, project, specs[0]), set[str]()
    seconds = [_typical(measured, spec, used) for spec in specs]
    known = [one for one in seconds if one is not None]
    if len(known) < len(specs):
        whose = (
            "" if len(specs) == 1 else f" for {len(specs) - len(known):,} of {_counted(len(specs), 'configuration')}"
        )
        result.text = (
            f"{text}; the time is not known: no job with this model, task, method, batch and length whose steps can be "
            f"compared has finished yet{whose}"
        )
        return result
    each = statistics.fmean(known)
    total = each * (most_jobs + len(dense))
    result.runtime.FromMilliseconds(round(1000 * total))
    result.gpu_hours = total * gpus / 3600
    result.measured_jobs = len(used)
    hours = f"{total / 3600:.1f} h" if total >= 3600 else f"{total / 60:.1f} min"
    gpu = f", {result.gpu_hours:.1f} GPU h" if gpus else ""
    result.text = (
        f"{text}; about {hours} of work{gpu} at {each:.0f} s each (by the seconds a step of "
        f"{_counted(len(used), 'finished job')} with this model, task, method and batch)"
    )
    return result


def _typical(measured: Iterable[_Measured], spec: job_pb2.CompressionSpec, used: set[str]) -> float | None:
    """The median over the jobs like it, whose uids are added to `used`."""
    alike = [one for one in measured if _kind(one.spec) == _kind(spec)]
    found = {one.uid: seconds for one in alike if (seconds := one.seconds_of(spec)) is not None}
    used.update(found)
    return statistics.median(found.values()) if found else None


def _kind(spec: job_pb2.CompressionSpec) -> Hashable:
    """What a step costs, and which trainings there are."""
    training = spec.training
    return (
        spec.WhichOneof("method"),
        training.batch_size,
        training.max_length,
        training.accumulation_steps or 1,
        spec.teacher.WhichOneof("source"),
        spec.baseline.WhichOneof("source"),
        spec.target_density >= 1,
    )


def _measured(conn: Connection, project: str, spec: job_pb2.CompressionSpec) -> list[_Measured]:
    found = select(JOBS.c.uid, JOBS.c.spec, JOBS.c.start_us, JOBS.c.end_us).where(
        JOBS.c.project == project,
        JOBS.c.task == spec.task,
        JOBS.c.model == spec.model,
        JOBS.c.state == JobState.SUCCEEDED,
        JOBS.c.attempt == 1,  # what others did again is not known
    )
    rows = fetch_all(conn, _FinishedRow, found.order_by(JOBS.c.create_us.desc()).limit(_LOOKED_AT))
    trained: dict[str, list[_TrainingRow]] = {}
    for one in fetch_all(conn, _TrainingRow, _trainings([row.uid for row in rows])):
        trained.setdefault(one.job_uid, []).append(one)
    result = []
    for row in rows:
        if row.start_us is not None and row.end_us is not None:
            seconds, its = (row.end_us - row.start_us) / SECOND, trained.get(row.uid, [])
            spent = sum(one.last_step * _seconds_a_step(one) for one in its) or seconds
            known = job_pb2.CompressionSpec.FromString(row.spec)
            steps = max((one.last_step for one in its), default=known.training.max_steps)
            result.append(_Measured(row.uid, known, seconds, steps or None, min(spent, seconds)))
    return result


def _trainings(uids: Sequence[str]) -> Executable:
    step, time = METRICS.c.step, METRICS.c.time_us
    found = select(
        METRICS.c.job_uid,
        func.min(step).label("first_step"),
        func.max(step).label("last_step"),
        func.min(time).label("first_us"),
        func.max(time).label("last_us"),
    ).where(METRICS.c.job_uid.in_(uids), METRICS.c.metric.in_(_TRAINING))
    return found.group_by(METRICS.c.job_uid, METRICS.c.metric)


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' if number != 1 else ''}"


def _seconds_a_step(training: _TrainingRow) -> float:
    steps = training.last_step - training.first_step
    return (training.last_us - training.first_us) / SECOND / steps if steps else 0.0
