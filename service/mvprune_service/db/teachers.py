"""Jobs that learn from the model of another job: who teaches, and what becomes of a student when that is known.

A student names its teacher by uid, so that a new job under an old name is none. It waits in the queue until its
teacher has an artifact, and from then on needs that artifact alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, Select, exists, literal, literal_column, select, update

from mvprune.common.identifiers import ID_PATTERN
from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.db import lifecycle
from mvprune_service.db.database import Tx
from mvprune_service.db.lifecycle import NewJob
from mvprune_service.db.models import JOBS, JobColumns
from mvprune_service.db.statements import Query
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, Command, JobState

_LOST = (JobState.FAILED, JobState.CANCELLED, JobState.CANCELLING)  # nothing to learn from comes of these
_AT_ONCE = 1000  # students that are told


def _waiting() -> Select[str]:
    student, teacher = JOBS.alias().with_cols(JobColumns), JOBS.alias().with_cols(JobColumns)
    ended = [literal(state) for state in TERMINAL]
    live = exists().where(teacher.c.uid == student.c.teacher_uid, teacher.c.state.not_in(ended))
    return (
        select(student.c.uid)
        .where(
            student.c.state_reason == literal_column(f"'{lifecycle.WAITING_FOR_TEACHER}'"),  # has an index
            student.c.state == JobState.QUEUED,
            ~live,
        )
        .limit(_AT_ONCE)
    )


_WAITING = Query(_waiting())


class NoTeacher(Exception):
    """A job cannot teach another; the text says why."""


def named(conn: Connection, project: str, spec: job_pb2.CompressionSpec, *, lock: bool = False) -> Row[Any]:
    """The job that `spec.teacher.job` names, by id or in full. With `lock` it stays as it is until the transaction
    ends. Raises NoTeacher."""
    given = spec.teacher.job
    name = ids.JobName(project, given) if ID_PATTERN.fullmatch(given) else ids.parse_job(given)
    if name is None or name.project != project:
        raise NoTeacher(f"got {given[:200]!r}; allowed: the id of a job, or its name, projects/{project}/jobs/JOB")
    found = select(JOBS).where(JOBS.c.project == project, JOBS.c.job_id == name.job)
    job = conn.execute(found.with_for_update(read=True) if lock else found).one_or_none()
    if job is None:
        raise NoTeacher(f"there is no {name}")
    if job.state in _LOST:
        raise NoTeacher(f"{name} is {job.state}: it has no model to learn from")
    task = job_pb2.CompressionSpec.FromString(job.spec).task
    if task != spec.task:
        raise NoTeacher(f"{name} is for the task {task}; allowed: a job for {spec.task}")
    return job


def trained(tx: Tx, student: NewJob, *, actor: str) -> Row[Any]:
    """The dense job that a student learns from: one that another student asked for, or a new one.

    Two transactions that make the same one at once cannot both be committed: the index on what it teaches forbids it.
    """
    dense = dense_spec(student.spec)
    digest = hashlib.sha256(lifecycle.canonical(dense)).hexdigest()
    shared = select(JOBS).where(JOBS.c.project == student.project, JOBS.c.teaches == digest)
    known = tx.conn.execute(shared.with_for_update()).one_or_none()
    if known is not None and known.state not in _LOST:
        return known
    if known is not None:
        tx.conn.execute(update(JOBS).where(JOBS.c.uid == known.uid).values(teaches=None))
    policy = job_pb2.ExecutionPolicy()
    policy.CopyFrom(student.policy)
    policy.ClearField("gates")  # they are about the pruned model
    teacher = replace(
        student,
        job_id=ids.new_job_id(f"{dense.task}-teacher"),
        display_name=f"teacher of {student.job_id}",
        spec=dense,
        policy=policy,
        labels={},
        teaches=digest,
    )
    return lifecycle.create(tx, teacher, actor=actor)


def dense_spec(student: job_pb2.CompressionSpec) -> job_pb2.CompressionSpec:
    """A fine-tuning with the student's model, data, settings and seed, that prunes nothing."""
    spec = job_pb2.CompressionSpec(
        model=student.model,
        model_revision=student.model_revision,
        task=student.task,
        target_density=1.0,
        seed=student.seed,
        magnitude=job_pb2.MagnitudePruning(),
    )
    if student.HasField("dataset"):
        spec.dataset.CopyFrom(student.dataset)
    training = job_pb2.Training()
    training.CopyFrom(student.training)
    training.ClearField("learning_rate_growth")  # of pruned matrices
    if training.ListFields():
        spec.training.CopyFrom(training)
    return spec


def waiting(conn: Connection) -> Sequence[str]:
    """Uids of students in the queue whose teacher has ended or is gone: they are to be told."""
    return [student.uid for student in _WAITING.all(conn)]


def learn(tx: Tx, uid: str, *, actor: str) -> None:
    """Tells a waiting student what became of its teacher: it may be started, or has FAILED."""
    student = lifecycle.lock_job(tx, uid)
    if student is None or student.state != JobState.QUEUED or student.teacher_sha256 is not None:
        return
    teacher = lifecycle.lock_job(tx, student.teacher_uid)
    if teacher is not None and teacher.state not in TERMINAL:
        return
    if teacher is not None and teacher.state == JobState.SUCCEEDED:
        policy = job_pb2.ExecutionPolicy.FromString(student.policy)
        lifecycle.touch(
            tx,
            student,
            teacher_sha256=teacher.artifact_sha256,
            state_reason="",
            queue_deadline_us=lifecycle.queue_deadline(tx, policy),
        )
        return
    message = _why(student, teacher)
    lifecycle.move(
        tx,
        student,
        Command.FAIL,
        actor,
        {"reason": FailureReason.TEACHER_FAILED.value, "message": message},
        failure_reason=FailureReason.TEACHER_FAILED,
        failure_message=message,
        state_reason=FailureReason.TEACHER_FAILED.value,
    )


def _why(student: Row[Any], teacher: Row[Any] | None) -> str:
    if teacher is None:
        given = job_pb2.CompressionSpec.FromString(student.spec).teacher.job
        return f"the teacher's job {given} was deleted before its model was learned from"
    name = ids.JobName(teacher.project, teacher.job_id)
    failure = f" ({teacher.failure_reason}: {teacher.failure_message})" if teacher.failure_reason else ""
    return f"the teacher's job {name} is {teacher.state}{failure}; retry that one first, then this one"
