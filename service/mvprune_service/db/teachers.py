"""Jobs that are distilled from the model of another job: students and their teachers.

A student refers to its teacher by uid, so a new job with an old name is not its teacher. The student waits in the queue
until the teacher has an artifact. From then on it needs only that artifact.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from sqlalchemy import Connection, Select, exists, literal, literal_column, select, update

from mvprune.common.identifiers import ID_PATTERN
from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.db import lifecycle
from mvprune_service.db.database import Tx
from mvprune_service.db.lifecycle import NewJob
from mvprune_service.db.models import JOBS, JobColumns
from mvprune_service.db.rows import JobRow, UidRow
from mvprune_service.db.statements import Query, fetch_one
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, JobState, Wait
from mvprune_service.domain.teaching import Resolution, can_teach, resolve
from mvprune_service.domain.times import queue_deadline_us

_AT_ONCE = 1000  # students in a round


def _unresolved() -> Select[str]:
    student, teacher = JOBS.alias().with_cols(JobColumns), JOBS.alias().with_cols(JobColumns)
    ended = [literal(state) for state in TERMINAL]
    live = exists().where(teacher.c.uid == student.c.teacher_uid, teacher.c.state.not_in(ended))
    return (
        select(student.c.uid)
        .where(
            student.c.state_reason == literal_column(f"'{Wait.TEACHER}'"),  # has an index
            student.c.state == JobState.QUEUED,
            ~live,
        )
        .limit(_AT_ONCE)
    )


_UNRESOLVED = Query(UidRow, _unresolved())


class NoTeacher(Exception):
    """A job cannot be the teacher of another; the text says why."""


def named(conn: Connection, project: str, spec: job_pb2.CompressionSpec, *, lock: bool = False) -> JobRow:
    """The job that `spec.teacher.job` names, by id or in full. With `lock` it stays as it is until the transaction
    ends. Raises NoTeacher."""
    given = spec.teacher.job
    name = ids.JobName(project, given) if ID_PATTERN.fullmatch(given) else ids.parse_job(given)
    if name is None or name.project != project:
        raise NoTeacher(f"must be the id of a job, or its name, projects/{project}/jobs/JOB, got {given[:200]!r}")
    found = select(JOBS).where(JOBS.c.project == project, JOBS.c.job_id == name.job)
    job = fetch_one(conn, JobRow, found.with_for_update(read=True) if lock else found)
    if job is None:
        raise NoTeacher(f"must be a job that exists, got {name}")
    if not can_teach(job.state):
        raise NoTeacher(f"must be a job that has a model or will have one, got {name}, which is {job.state}")
    task = job_pb2.CompressionSpec.FromString(job.spec).task
    if task != spec.task:
        raise NoTeacher(f"must be a job for the task {spec.task}, got {name}, which is for {task}")
    return job


def with_teacher(tx: Tx, new: NewJob) -> NewJob:
    """The job with the full name of its teacher's job, which is created here if it has to be trained.

    The caller creates the returned job in the same transaction. Raises NoTeacher.
    """
    if new.spec.teacher.WhichOneof("source") == "job":
        teacher = named(tx.conn, new.project, new.spec, lock=True)
    elif new.spec.teacher.train:
        teacher = get_or_create_teacher(tx, new, actor=new.creator)
    else:
        return new
    spec = name_teacher(new.spec, teacher)
    return replace(new, spec=spec, teacher_uid=teacher.uid, teacher_sha256=teacher.artifact_sha256)


def name_teacher(spec: job_pb2.CompressionSpec, teacher: JobRow) -> job_pb2.CompressionSpec:
    """The spec with its teacher's job by its full name."""
    copy = job_pb2.CompressionSpec()
    copy.CopyFrom(spec)
    copy.teacher.job = str(teacher.name)
    return copy


def get_or_create_teacher(tx: Tx, student: NewJob, *, actor: str) -> JobRow:
    """The dense job that is the teacher of a student: one that was created for another student, or a new one.

    If two transactions create the same teacher at once, the unique index on `teacher_key` lets only one commit.
    """
    dense = dense_spec(student.spec)
    key = digest(dense)
    shared = select(JOBS).where(JOBS.c.project == student.project, JOBS.c.teacher_key == key)
    known = fetch_one(tx.conn, JobRow, shared.with_for_update())
    if known is not None and can_teach(known.state):
        return known
    if known is not None:
        tx.conn.execute(update(JOBS).where(JOBS.c.uid == known.uid).values(teacher_key=None))
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
        teacher_key=key,
        sweep_id=None,
    )
    return lifecycle.create(tx, teacher, actor=actor)


def digest(dense: job_pb2.CompressionSpec) -> str:
    """What identifies a shared dense job: its `teacher_key`."""
    return hashlib.sha256(lifecycle.canonical(dense)).hexdigest()


def dense_spec(student: job_pb2.CompressionSpec) -> job_pb2.CompressionSpec:
    """The spec of a fine-tuning with the student's model, data, settings and seed, without pruning. A model that is
    fine-tuned already is its own result."""
    spec = job_pb2.CompressionSpec(
        model=student.model,
        model_revision=student.model_revision,
        task=student.task,
        target_density=1.0,
        seed=student.seed,
        magnitude=job_pb2.MagnitudePruning(),
        keep_fine_tuned=True,
    )
    if student.HasField("dataset"):
        spec.dataset.CopyFrom(student.dataset)
    training = job_pb2.Training()
    training.CopyFrom(student.training)
    training.ClearField("lr_density_exponent")  # of pruned matrices
    if training.ListFields():
        spec.training.CopyFrom(training)
    return spec


def unresolved_students(conn: Connection) -> list[str]:
    """Uids of students in the queue whose teacher has ended or was deleted."""
    return [student.uid for student in _UNRESOLVED.all(conn)]


def resolve_teacher(tx: Tx, uid: str, *, actor: str) -> None:
    """Lets a student whose teacher has ended start, or fails it."""
    student = lifecycle.lock_job(tx, uid)
    if student is None or student.teacher_uid is None:
        return
    teacher = lifecycle.lock_job(tx, student.teacher_uid)
    resolution = resolve(
        student.state,
        has_model=student.teacher_sha256 is not None,
        teacher=None if teacher is None else teacher.state,
    )
    if resolution is Resolution.START and teacher is not None:
        policy = job_pb2.ExecutionPolicy.FromString(student.policy)
        lifecycle.touch(
            tx,
            student,
            teacher_sha256=teacher.artifact_sha256,
            state_reason="",
            queue_deadline_us=queue_deadline_us(tx.now, policy, waits=False),
        )
    elif resolution is Resolution.FAIL:
        lifecycle.fail(tx, student, FailureReason.TEACHER_FAILED, _why(student, teacher), actor=actor)


def _why(student: JobRow, teacher: JobRow | None) -> str:
    if teacher is None:
        given = job_pb2.CompressionSpec.FromString(student.spec).teacher.job
        return f"the teacher's job {given} was deleted before its model was learned from"
    failure = f" ({teacher.failure_reason}: {teacher.failure_message})" if teacher.failure_reason else ""
    return f"the teacher's job {teacher.name} is {teacher.state}{failure}; retry that one first, then this one"
