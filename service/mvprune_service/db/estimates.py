"""Estimates of jobs, by jobs like them: those that have finished, else the first steps of one that runs."""

from __future__ import annotations

import math
import statistics
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlalchemy import Connection, Executable, bindparam, func, select

from mvprune.common.units import counted
from mvprune.data.phases import TRAININGS
from mvprune.data.tasks import UnknownTask, get_task
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import teachers
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.statements import Query, fetch_all
from mvprune_service.db.tables.attempts import METRICS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.placement import together
from mvprune_service.domain.teaching import can_teach, dense_spec

_FRESH_SECONDS = 2.0
_KEPT = 1_000  # models and tasks
_LOOKED_AT = 50  # jobs of a model and task, the newest first
_LOSSES = {f"{name}/loss": name for name in TRAININGS}  # metrics that have a point every few steps of a training
_FIRST_STEPS = 10  # that a running job has to have made


class Asked(NamedTuple):
    """A job whose time is asked for.

    Attributes:
        spec: what it does.
        resources: what it asks for.
        steps: of each training; 0: not known.
    """

    spec: job_pb2.CompressionSpec
    resources: job_pb2.Resources
    steps: int = 0


class _JobRow(NamedTuple):
    uid: str
    job_id: str
    spec: bytes
    policy: bytes
    start_us: int | None
    end_us: int | None
    update_us: int
    progress: bytes | None


_NEWEST = Query(
    _JobRow,
    select(*(JOBS.c[name] for name in _JobRow._fields))
    .where(
        JOBS.c.project == bindparam("in_project"),
        JOBS.c.model == bindparam("of_model"),
        JOBS.c.task == bindparam("of_task"),
        JOBS.c.attempt == 1,  # what others did again is not known
        JOBS.c.state == bindparam("in_state"),
    )
    .order_by(JOBS.c.create_us.desc())
    .limit(_LOOKED_AT),
)


class _TrainingRow(NamedTuple):
    job_uid: str
    metric: str
    first_step: int
    last_step: int
    first_us: int
    last_us: int

    @property
    def rate(self) -> float:
        """Seconds a step; 0: not known."""
        steps = self.last_step - self.first_step
        return (self.last_us - self.first_us) / SECOND / steps if steps else 0.0


class _TeacherRow(NamedTuple):
    teacher_key: str
    state: JobState


@dataclass(frozen=True)
class _Measured:
    """A job that was measured.

    Attributes:
        seconds: from its start to its end, which of a running job its worker estimates.
        steps: of its longest training; 0: not known.
        training: seconds of all steps; the rest of `seconds` does not depend on their number.
        first: steps that a running job has made; 0: the job has finished.
    """

    uid: str
    job_id: str
    spec: job_pb2.CompressionSpec
    kind: Hashable
    seconds: float
    steps: int
    training: float
    first: int = 0

    @property
    def method(self) -> str:
        """The name of its method."""
        return str(self.spec.WhichOneof("method"))

    def seconds_of(self, asked: Asked) -> float | None:
        """How long a job like this one takes. None: its steps cannot be compared."""
        factor = self._factor(asked)
        return None if factor is None else self.seconds + (factor - 1) * self.training

    def _factor(self, asked: Asked) -> float | None:
        """How many times as many steps it makes."""
        new, own = asked.spec.training, self.spec.training
        if asked.steps and self.steps:
            return asked.steps / self.steps
        if asked.spec.dataset != self.spec.dataset or own.HasField("max_steps") or new.HasField("max_steps"):
            return 1.0 if new.max_steps and new.max_steps == own.max_steps else None  # else the examples decide
        if new.HasField("epochs") and own.HasField("epochs"):
            return new.epochs / own.epochs if self.training or new.epochs == own.epochs else None
        same = new.HasField("epochs") == own.HasField("epochs") and new.preset == own.preset
        return 1.0 if same else None


@dataclass
class _Measurements:
    """Measured jobs, and those of them that were used."""

    jobs: Sequence[_Measured]
    used: dict[str, tuple[_Measured, bool]] = field(default_factory=dict)  # and whether the method was another one

    def seconds(self, asked: Asked) -> float | None:
        """The median over the jobs like it. Finished jobs are better than a running one, and those with its method than
        others."""
        if not self.jobs:
            return None
        method, kind = str(asked.spec.WhichOneof("method")), _kind(asked.spec, asked.resources)
        alike = [one for one in self.jobs if one.kind == kind]
        for is_other in (False, True):
            for runs in (False, True):
                jobs = [one for one in alike if (one.method != method, one.first > 0) == (is_other, runs)]
                found = {one.uid: (one, time) for one in jobs if (time := one.seconds_of(asked)) is not None}
                same_data = {uid: it for uid, it in found.items() if it[0].spec.dataset == asked.spec.dataset}
                if chosen := same_data or found:
                    self.used |= {uid: (one, is_other) for uid, (one, _) in chosen.items()}
                    return statistics.median(time for _, time in chosen.values())
        return None

    @property
    def source(self) -> str:
        """The basis of the times, in words."""
        words = []
        for is_other in (False, True):
            jobs = [one for one, other in self.used.values() if other is is_other]
            methods = ", ".join(sorted({one.method for one in jobs}))
            differs = f" and another method ({methods}), whose steps may take longer or shorter" if is_other else ""
            if finished := [one for one in jobs if not one.first]:
                what = "model, task and batch" if is_other else "model, task, method and batch"
                number = counted(len(finished), "finished job")
                words.append(f"by the seconds a step of {number} with this {what}{differs}")
            words += [
                f"by the first {one.first:,} steps of job {one.job_id}, which still runs"
                + (f" and has another method ({one.method})" if is_other else "")
                for one in jobs
                if one.first
            ]
        return ", and ".join(words)


class Estimates:
    """Estimates of jobs that are submitted.

    Jobs like them are read again after two seconds at the earliest: to read them at each of many submissions would take
    longer than all else.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._kept: OrderedDict[tuple[str, str, str], tuple[float, _Measurements]] = OrderedDict()

    async def job(self, project: str, asked: Asked, *, fresh: bool = False) -> tuple[float | None, str]:
        """Seconds of work of a job, None if they are not known, and the same in words.

        Args:
            project: the job's.
            asked: the job.
            fresh: read jobs like it again in any case.
        """
        key = project, asked.spec.model, asked.spec.task
        now = time.monotonic()
        read, measured = self._kept.get(key, (-math.inf, _Measurements(())))
        if fresh or now - read > _FRESH_SECONDS or teachers.trains(asked.spec):
            dense, measured = await self._db.read(_facts, project, asked)
            self._kept[key] = now, measured
            self._kept.move_to_end(key)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
            return _of_job(asked, dense, measured)
        return _of_job(asked, (), measured)


def step_us(conn: Connection, job_uid: str) -> int:
    """The time of a step of a job's longest training; 0 where it is not known."""
    trained = fetch_all(conn, _TrainingRow, _trainings([job_uid]))
    longest = max(trained, key=lambda one: one.last_step, default=None)
    return 0 if longest is None else round(longest.rate * SECOND)


def _facts(conn: Connection, project: str, asked: Asked) -> tuple[Sequence[Asked], _Measurements]:
    """The dense jobs that will be created for a job, and jobs like it."""
    dense, _ = _baselines(conn, project, [asked])
    return dense, _measurements(conn, project, [asked])


def _of_job(asked: Asked, dense: Sequence[Asked], found: _Measurements) -> tuple[float | None, str]:
    measured = _Measurements(found.jobs)  # what was used is this job's
    seconds = measured.seconds(asked)
    if seconds is None:
        return None, (
            "not known yet: no job with this model, task, batch and length has made steps here; mvpctl get JOB shows "
            "the time left after the first steps"
        )
    text = f"about {_worded(seconds)} of work"
    for one in dense:
        its = measured.seconds(one)
        text += ", after its dense job of " + ("unknown time" if its is None else f"about {_worded(its)}")
    return seconds, f"{text} ({measured.source})"


def estimate_sweep(conn: Connection, project: str, jobs: Sequence[Asked], most_jobs: int) -> sweep_pb2.SweepEstimate:
    """Jobs, baselines, and their time: seconds a step, as they were measured, for the steps of each job.

    Args:
        jobs: its points; at least one.
        most_jobs: how many jobs there are at most.
    """
    dense, known_dense = _baselines(conn, project, jobs)
    exist = f" ({known_dense:,} more exist)" if known_dense else ""
    text = f"{counted(most_jobs, 'job')} + {counted(len(dense), 'baseline')}{exist}"
    result = sweep_pb2.SweepEstimate(jobs=most_jobs, baselines=len(dense))
    measured = _measurements(conn, project, [*jobs, *dense])
    known = [seconds for one in jobs if (seconds := measured.seconds(one)) is not None]
    if len(known) < len(jobs):
        whose = "" if len(jobs) == 1 else f" for {len(jobs) - len(known):,} of {counted(len(jobs), 'configuration')}"
        result.text = (
            f"{text}; the time is not known yet, as no job with this model, task, batch and length has made steps "
            f"here{whose}; mvpctl get JOB shows the time left after the first steps"
        )
        return result
    each = statistics.fmean(known)
    total = each * most_jobs + sum(measured.seconds(one) or each for one in dense)
    gpus = together(jobs[0].resources).gpus
    result.runtime.FromMilliseconds(round(1000 * total))
    result.gpu_hours = total * gpus / 3600
    result.measured_jobs = len(measured.used)
    gpu = f", {result.gpu_hours:.1f} GPU h" if gpus else ""
    result.text = f"{text}; about {_worded(total)} of work{gpu} at {_worded(each)} each ({measured.source})"
    return result


def _baselines(conn: Connection, project: str, jobs: Iterable[Asked]) -> tuple[list[Asked], int]:
    """The dense jobs that will be created for jobs, and how many there are already."""
    wanted = {}
    for spec, resources, steps in jobs:
        if teachers.trains(spec):
            dense = dense_spec(spec)
            wanted[teachers.digest(dense)] = Asked(dense, resources, steps)
    if not wanted:
        return [], 0
    found = select(JOBS.c.teacher_key, JOBS.c.state).where(
        JOBS.c.project == project, JOBS.c.teacher_key.in_(sorted(wanted))
    )
    known = {row.teacher_key for row in fetch_all(conn, _TeacherRow, found) if can_teach(row.state)}
    return [one for key, one in wanted.items() if key not in known], len(known)


def _kind(spec: job_pb2.CompressionSpec, resources: job_pb2.Resources) -> Hashable:
    """The key of a step's cost, but for the method, and the phases."""
    training = spec.training
    batch_size, max_length = training.batch_size, training.max_length
    try:
        task = get_task(spec.task)
        batch_size, max_length = batch_size or task.batch_size, max_length or task.max_length
    except UnknownTask:  # of another version
        pass
    teacher = spec.teacher.WhichOneof("source")
    return (
        spec.model,
        spec.task,
        batch_size,
        max_length,
        training.accumulation_steps or 1,
        training.precision,
        training.compile,
        training.gradient_checkpointing,
        training.train_embeddings,
        training.evaluate_every,
        teachers.role_of(spec) is not None,  # its dense model is another job's, or it has to be trained
        teacher if teacher in ("model", "none") else "",
        spec.teacher.writes_targets,
        spec.baseline.none,
        spec.target_density >= 1,
        spec.structure,
        spec.HasField("target_bytes"),
        resources.gpus if resources.HasField("gpus") else None,
        resources.cpus if resources.HasField("cpus") else None,
        resources.workers or 1,
    )


def _measurements(conn: Connection, project: str, jobs: Iterable[Asked]) -> _Measurements:
    about = sorted({(one.spec.model, one.spec.task) for one in jobs})
    rows = [
        row
        for model, task in about
        for state in (JobState.SUCCEEDED, JobState.RUNNING)
        for row in _NEWEST.all(conn, {"in_project": project, "of_model": model, "of_task": task, "in_state": state})
    ]
    trained: dict[str, dict[str, _TrainingRow]] = {}
    for one in fetch_all(conn, _TrainingRow, _trainings([row.uid for row in rows])) if rows else ():
        trained.setdefault(one.job_uid, {})[_LOSSES[one.metric]] = one
    measured = (_measured(row, trained.get(row.uid, {})) for row in rows)
    return _Measurements([one for one in measured if one is not None])


def _measured(row: _JobRow, trained: dict[str, _TrainingRow]) -> _Measured | None:
    """A job by the points of its trainings. None: it says nothing yet."""
    if row.start_us is None:
        return None
    spec = job_pb2.CompressionSpec.FromString(row.spec)
    kind = _kind(spec, job_pb2.ExecutionPolicy.FromString(row.policy).resources)
    last = {name: one.last_step for name, one in trained.items()}
    rates = {name: one.rate for name, one in trained.items() if one.rate > 0}
    if row.end_us is not None:
        seconds = (row.end_us - row.start_us) / SECOND
        training = min(seconds, sum(last[name] * rate for name, rate in rates.items()))
        return _Measured(row.uid, row.job_id, spec, kind, seconds, max(last.values()) if rates else 0, training)
    progress, first = job_pb2.Progress.FromString(row.progress or b""), sum(last.values())
    steps = progress.total_steps if progress.phase in TRAININGS else 0
    if not (progress.HasField("eta") and steps and rates and first >= _FIRST_STEPS):
        return None
    seconds = (row.update_us - row.start_us) / SECOND + progress.eta.ToTimedelta().total_seconds()
    any_rate = next(iter(rates.values()))
    training = steps * sum(rates.get(name, any_rate) for name in {"pruning", *last})
    return _Measured(row.uid, row.job_id, spec, kind, seconds, steps, min(seconds, training), first)


def _trainings(uids: Sequence[str]) -> Executable:
    step, time = METRICS.c.step, METRICS.c.time_us
    found = select(
        METRICS.c.job_uid,
        METRICS.c.metric,
        func.min(step).label("first_step"),
        func.max(step).label("last_step"),
        func.min(time).label("first_us"),
        func.max(time).label("last_us"),
    ).where(METRICS.c.job_uid.in_(uids), METRICS.c.metric.in_(sorted(_LOSSES)))
    return found.group_by(METRICS.c.job_uid, METRICS.c.metric)


def _worded(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
