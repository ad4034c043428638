"""One step of a sweep: results are kept, its strategy adds points, jobs are created, and the sweep ends.

The step is one transaction. It may be repeated, or cut off at any moment: what it decides follows from the rows of the
sweep, of its points and of their jobs. domain/sweeping.py and proposals.py decide.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mvprune.sweep.verdict import Verdict
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import beginnings, lifecycle, records, sweep_records, sweeps, teachers
from mvprune_service.db.beginnings import NoBeginning
from mvprune_service.db.early_stops import hopeless_points
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.lifecycle import NewJob, canonical
from mvprune_service.db.proposals import propose
from mvprune_service.db.quotas import QueueFull, QueueQuota
from mvprune_service.db.reuse import reusable
from mvprune_service.db.sweep_results import keep_results, recommendation_of, result_of, verdict_of
from mvprune_service.db.tables.sweeps import PointRow, SweepRow
from mvprune_service.db.teachers import NoTeacher
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, JobState
from mvprune_service.domain.sweeping import ENDED, Decision, Facts, PointState, Reason, SweepState, decide
from mvprune_service.domain.teaching import dense_spec
from mvprune_service.ids import JobName

log = logging.getLogger(__name__)

ACTOR = "sweeps"
AT_ONCE = 100  # jobs that a step creates or cancels
_GRACE_US = 10 * SECOND
_HOUR_US = 3600 * SECOND


@dataclass(frozen=True)
class _Step:
    """A locked sweep, in a transaction."""

    tx: Tx
    sweep: SweepRow
    spec: sweep_pb2.SweepSpec
    policy: sweep_pb2.SweepPolicy
    points: Mapping[int, PointRow]
    quota: QueueQuota


@dataclass(frozen=True)
class _Found:
    """The verdict on the results. It is computed when there are new ones, which takes long for many points.

    Attributes:
        recommendation: empty without a result.
    """

    recommendation: sweep_pb2.Recommendation
    front: list[int]

    @classmethod
    def of(cls, verdict: Verdict) -> _Found:
        return cls(recommendation_of(verdict) or sweep_pb2.Recommendation(), list(verdict.front))

    @classmethod
    def stored(cls, sweep: SweepRow) -> _Found:
        return cls(sweep_pb2.Recommendation.FromString(sweep.recommendation or b""), sweep.front)


def expand(tx: Tx, uid: str, quota: QueueQuota) -> bool:
    """Takes a sweep one step further. Returns whether there is more to do at once."""
    sweep = sweeps.lock_sweep(tx, uid)
    if sweep is None or sweep.state in ENDED:
        return False
    spec = sweep_pb2.SweepSpec.FromString(sweep.spec)
    policy = sweep_pb2.SweepPolicy.FromString(sweep.policy)
    points, has_new = keep_results(tx, sweep, sweep_records.points_of(tx.conn, uid))
    found, is_complete = _Found.of(verdict_of(spec, points)) if has_new else _Found.stored(sweep), True
    notes = sweep.notes
    if sweep.state is SweepState.ACTIVE:
        proposal = propose(spec, policy, points, (tx.now - sweep.active_us) / SECOND)
        is_complete = proposal.is_complete
        notes = [*notes, *(note for note in proposal.notes if note not in notes)]
        if sweeps.add_points(tx, sweep, proposal.points):
            points = sweep_records.points_of(tx.conn, uid)
    step = _Step(tx, sweep, spec, policy, {point.number: point for point in points}, quota)
    facts = Facts(
        state=sweep.state,
        points={point.number: point.state for point in points},
        parallel=policy.parallel,
        max_failed=policy.max_failed if policy.HasField("max_failed") else None,
        stop_on_failure=policy.on_failure == sweep_pb2.SweepPolicy.STOP,
        is_budget_used=_is_budget_used(step),
        is_complete=is_complete,
        passes=found.recommendation.passed or not spec.gates,
    )
    decision = decide(facts)
    for number in decision.skip:
        sweeps.set_point(tx, sweep, number, again=False, skip_reason=decision.skip_reason)
    cancel = [number for number in decision.cancel if step.points[number].job_state is not JobState.CANCELLING]
    _cancel(step, cancel[:AT_ONCE])
    if decision.cancel or decision.state in ENDED:
        is_live = sweeps.cancel_baselines(tx, sweep, _baselines(step), actor=ACTOR, grace_us=_GRACE_US)
        if is_live and decision.state in ENDED:  # nothing that it created is left behind
            decision = Decision(sweep.state, decision.reason)
    waits, has_new = _create(step, decision.create[:AT_ONCE])
    if has_new:
        found = _Found.of(verdict_of(spec, sweep_records.points_of(tx.conn, uid)))
    if policy.early_stop and sweep.state is SweepState.ACTIVE:
        _stop_early(step, hopeless_points(tx.conn, uid, spec, points))
    _store(step, decision, Reason.QUOTA if waits else decision.reason, found, notes)
    return (len(decision.create) > AT_ONCE and not waits) or len(cancel) > AT_ONCE


def _create(step: _Step, numbers: Sequence[int]) -> tuple[bool, bool]:
    """Creates the jobs of points, or has them run again. Returns whether the project's queue is full, and whether
    results of other jobs were taken."""
    failed, has_new = _failed_baselines(step), False
    specs = sweep_records.specs_of(step.tx.conn, step.sweep.uid, numbers)
    for number in numbers:
        spec = job_pb2.CompressionSpec.FromString(specs[number])
        point = step.points[number]
        try:
            if point.again:
                _run_again(step, point, spec)
            elif teachers.trains(spec) and teachers.digest(dense_spec(spec)) in failed:
                reason = FailureReason.TEACHER_FAILED.value
                sweeps.set_point(step.tx, step.sweep, number, skip_reason=reason)
            else:
                has_new |= _create_job(step, point, spec)
        except QueueFull:
            return True, has_new
        except NoTeacher:  # the job that it names has failed, or was deleted
            sweeps.set_point(step.tx, step.sweep, number, again=False, skip_reason=FailureReason.TEACHER_FAILED.value)
        except NoBeginning:  # the artifact of the job that it names was deleted
            sweeps.set_point(step.tx, step.sweep, number, again=False, skip_reason=FailureReason.INVALID_MODEL.value)
    return False, has_new


def _create_job(step: _Step, point: PointRow, spec: job_pb2.CompressionSpec) -> bool:
    """Creates the job of a point, or takes the result of an equal one: then it returns True. Raises QueueFull,
    NoTeacher, NoBeginning."""
    tx, sweep = step.tx, step.sweep
    new = beginnings.with_beginning(tx.conn, _new_job(step, point, spec, _free_id(step, point)))
    spec = new.spec
    known = reusable(tx.conn, sweep.project, spec, sweep.inputs_us) if step.policy.reuse else None
    if known is not None:
        result = result_of(tx.conn, known.uid)
        sweeps.set_point(tx, sweep, point.number, job_uid=known.uid, job_id=known.job_id, reused=True, result=result)
        tx.after.append(partial(log.info, "%s, point %d: takes the result of %s", sweep.name, point.number, known.name))
        return True
    for _ in range(1 + teachers.trains(spec)):
        step.quota.check(tx.conn, sweep.project)
    job = lifecycle.create(tx, teachers.with_teacher(tx, new), actor=ACTOR)
    sweeps.set_point(tx, sweep, point.number, job_uid=job.uid, job_id=job.job_id)
    return False


def _new_job(step: _Step, point: PointRow, spec: job_pb2.CompressionSpec, job_id: str) -> NewJob:
    sweep = step.sweep
    size = sweep.model_sizes.get(spec.model)
    return NewJob(
        project=sweep.project,
        job_id=job_id,
        spec=spec,
        policy=_job_policy(step.spec),
        creator=sweep.creator,
        display_name=f"{sweep.display_name or sweep.sweep_id}, point {point.number}",
        labels=sweep.labels,
        model_size=job_pb2.ModelSize.FromString(base64.b64decode(size)) if size else None,
        sweep_id=sweep.sweep_id,
    )


def _job_policy(spec: sweep_pb2.SweepSpec) -> job_pb2.ExecutionPolicy:
    """The policy of a sweep's jobs: each is compared with the gates of the sweep too, and its latency is measured."""
    policy = job_pb2.ExecutionPolicy()
    policy.CopyFrom(spec.job_policy)
    policy.measure_latency = True
    policy.gates.extend(gate for gate in spec.gates if gate not in policy.gates)
    return policy


def _run_again(step: _Step, point: PointRow, spec: job_pb2.CompressionSpec) -> None:
    """RETRY of a job that has ended, after its teacher's if that has no model. A job that runs is not changed. Raises
    QueueFull, NoTeacher, NoBeginning."""
    job = lifecycle.lock_job(step.tx, point.job_uid or "")
    if job is not None and job.state in (JobState.FAILED, JobState.CANCELLED):
        step.quota.check(step.tx.conn, step.sweep.project)
        teacher = lifecycle.lock_job(step.tx, job.teacher_uid) if job.teacher_uid else None
        if teacher is not None and teacher.state in (JobState.FAILED, JobState.CANCELLED):
            lifecycle.retry(step.tx, teacher, actor=ACTOR)
        elif teacher is None and job.teacher_uid and job.teacher_sha256 is None:  # it was deleted before it had a model
            new = beginnings.with_beginning(step.tx.conn, _new_job(step, point, spec, job.job_id))
            new = teachers.with_teacher(step.tx, new)
            own = {"spec": canonical(new.spec), "teacher_uid": new.teacher_uid, "teacher_sha256": new.teacher_sha256}
            lifecycle.touch(step.tx, job, **own)
            job = lifecycle.lock_job(step.tx, job.uid) or job
        lifecycle.retry(step.tx, job, actor=ACTOR)
    sweeps.set_point(step.tx, step.sweep, point.number, again=False)


def _free_id(step: _Step, point: PointRow) -> str:
    """The id of a point's job: that of the sweep and the number of the point, unless another job has it."""
    sweep = step.sweep
    wanted = f"{sweep.sweep_id}-{point.number:04d}"
    if records.job_named(step.tx.conn, JobName(sweep.project, wanted)) is None:
        return wanted
    return f"{wanted}-{sweep.uid[-6:]}"


def _failed_baselines(step: _Step) -> set[str]:
    """Digests of the dense jobs that have failed: no further job waits for such a one until the sweep is retried."""
    reason = FailureReason.TEACHER_FAILED.value
    failed = [
        point.number
        for point in step.points.values()
        if point.state is PointState.FAILED and point.job_reason == reason
    ]
    specs = sweep_records.specs_of(step.tx.conn, step.sweep.uid, failed)
    return {teachers.digest(dense_spec(job_pb2.CompressionSpec.FromString(spec))) for spec in specs.values()}


def _baselines(step: _Step) -> set[str]:
    """Uids of the jobs that teach those of the points."""
    return {point.teacher_uid for point in step.points.values() if point.teacher_uid is not None}


def _cancel(step: _Step, numbers: Sequence[int]) -> None:
    """Asks for the cancellation of jobs."""
    reason = f"the sweep {step.sweep.sweep_id} was cancelled"
    for number in numbers:
        point = step.points[number]
        job = lifecycle.lock_job(step.tx, point.job_uid or "")
        if job is not None and job.state not in TERMINAL:
            lifecycle.cancel(step.tx, job, reason=reason, grace_us=_GRACE_US, actor=ACTOR)


def _stop_early(step: _Step, numbers: Sequence[int]) -> None:
    """Cancels jobs that cannot become the best of their density any more."""
    for number in numbers:
        point = step.points[number]
        job = lifecycle.lock_job(step.tx, point.job_uid or "")
        if job is not None and job.state in (JobState.STARTING, JobState.RUNNING):
            reason = f"it cannot become the best of its density in the sweep {step.sweep.sweep_id} any more"
            lifecycle.cancel(step.tx, job, reason=reason, grace_us=_GRACE_US, actor=ACTOR)
            sweeps.set_point(step.tx, step.sweep, number, skip_reason=Reason.EARLY)


def _store(step: _Step, decision: Decision, reason: str, found: _Found, notes: list[str]) -> None:
    """Stores what has changed of the sweep itself."""
    sweep, text = step.sweep, found.recommendation.text
    changed = {
        "notes": notes,
        "state_reason": reason,
        "recommendation": canonical(found.recommendation) if text else None,
        "front": found.front,
    }
    if decision.state is not sweep.state:
        details = {"reason": reason} if reason else {}
        details |= {"recommendation": text} if text else {}
        end = {"end_us": step.tx.now} if decision.state in ENDED else {}
        sweeps.record(step.tx, sweep, decision.state.value, ACTOR, details, state=decision.state, **changed, **end)
        step.tx.after.append(partial(log.info, "%s: %s -> %s", sweep.name, sweep.state, decision.state))
    elif any(getattr(sweep, name) != value for name, value in changed.items()):
        sweeps.touch(step.tx, sweep, **changed)


def _is_budget_used(step: _Step) -> bool:
    policy, now = step.policy, step.tx.now
    if policy.HasField("max_runtime") and now - step.sweep.active_us >= policy.max_runtime.ToMicroseconds():
        return True
    if not policy.HasField("max_gpu_hours"):
        return False
    usage, _, _ = sweep_records.usage_of(step.tx.conn, step.sweep.uid, now)
    return usage.gpu_us >= policy.max_gpu_hours * _HOUR_US
