"""Jobs that need the artifact of another job: students and their teachers.

A student is distilled from the teacher's model. The teacher of a job with a baseline is the job that its dense metrics
come from, whether the model is learned from or not.

A student refers to its teacher by uid, so a new job with an old name is not its teacher. The student waits in the queue
until the teacher has an artifact. From then on it needs only that artifact.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Literal

from sqlalchemy import Connection, Select, exists, literal, literal_column, select, update

from mvprune.common.identifiers import ID_PATTERN
from mvprune.data.tasks import get_task
from mvprune.sources.uploads import is_upload
from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Query, fetch_one
from mvprune_service.db.lifecycle import NewJob
from mvprune_service.db.tables.jobs import JOBS, JobColumns, JobRow, UidRow
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, JobState, Wait
from mvprune_service.domain.teaching import Resolution, can_teach, dense_spec, resolve
from mvprune_service.domain.times import queue_deadline_us

Role = Literal["teacher", "baseline"]
_AT_ONCE = 1000  # students in a round
_JOBS = ("job", "train")  # sources that are jobs


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
    """A job cannot be the teacher or the baseline of another; the text says why.

    Attributes:
        field: the field that names the job.
    """

    def __init__(self, role: Role, text: str) -> None:
        super().__init__(text)
        self.field = f"job.spec.{role}.job"


def role_of(spec: job_pb2.CompressionSpec) -> Role | None:
    """The role of the job that `spec` waits for; None if it waits for none. A teacher may be the baseline too."""
    if spec.teacher.WhichOneof("source") in _JOBS:
        return "teacher"
    return "baseline" if spec.baseline.WhichOneof("source") in _JOBS else None


def trains(spec: job_pb2.CompressionSpec) -> bool:
    """Whether a dense job is created for this one, unless there is one that it can share."""
    role = role_of(spec)
    return role is not None and getattr(spec, role).WhichOneof("source") == "train"


def named(conn: Connection, project: str, spec: job_pb2.CompressionSpec, *, lock: bool = False) -> JobRow:
    """The job that `spec` names as its teacher or baseline, by id or in full. With `lock` it stays as it is until the
    transaction ends. Raises NoTeacher."""
    role: Role = role_of(spec) or "teacher"
    given = getattr(spec, role).job
    name = ids.JobName(project, given) if ID_PATTERN.fullmatch(given) else ids.parse_job(given)
    if name is None or name.project != project:
        raise NoTeacher(role, f"must be the id of a job, or its name, projects/{project}/jobs/JOB, got {given[:200]!r}")
    found = select(JOBS).where(JOBS.c.project == project, JOBS.c.job_id == name.job)
    job = fetch_one(conn, JobRow, found.with_for_update(read=True) if lock else found)
    if job is None:
        raise NoTeacher(role, f"must be a job that exists, got {name}")
    if not can_teach(job.state):
        raise NoTeacher(role, f"must be a job that has a model or will have one, got {name}, which is {job.state}")
    other = job_pb2.CompressionSpec.FromString(job.spec)
    if other.task != spec.task:
        raise NoTeacher(role, f"must be a job for the task {spec.task}, got {name}, which is for {other.task}")
    if spec.baseline.job and other.target_density != 1:
        text = f"must be a job with density 1, got {name}, which has the density {other.target_density:g}"
        raise NoTeacher("baseline", text)
    if spec.baseline.job and other.activations == job_pb2.Runtime.INT8:
        raise NoTeacher("baseline", f"must be a job with fp32 activations, got {name}, which has int8")
    return job


def with_teacher(tx: Tx, new: NewJob) -> NewJob:
    """The job with the full name of the job of its teacher or baseline, which is created here if it has to be trained.

    The caller creates the returned job in the same transaction. Raises NoTeacher, NoUpload.
    """
    role = role_of(new.spec)
    if role is None:
        return new
    if getattr(new.spec, role).WhichOneof("source") == "job":
        teacher = named(tx.conn, new.project, new.spec, lock=True)
    else:
        teacher = get_or_create_teacher(tx, new, role, actor=new.creator)
    spec, taught = name_job(new.spec, teacher), job_pb2.CompressionSpec.FromString(teacher.spec)
    base = taught.model if spec.teacher.job and taught.delta and is_upload(taught.model) else ""
    return replace(new, spec=spec, teacher_uid=teacher.uid, teacher_sha256=teacher.artifact_sha256, base_upload=base)


def name_job(spec: job_pb2.CompressionSpec, job: JobRow) -> job_pb2.CompressionSpec:
    """The spec with the full name of the job of its teacher or baseline. Without a teacher, the baseline is that."""
    copy = job_pb2.CompressionSpec()
    copy.CopyFrom(spec)
    role = role_of(spec)
    if role == "baseline" or spec.baseline.job:
        copy.baseline.job = str(job.name)
    can_be_distilled = not get_task(spec.task).kind.not_distilled
    if role == "teacher" or (spec.teacher.WhichOneof("source") is None and can_be_distilled):
        copy.teacher.job = str(job.name)
    return copy


def get_or_create_teacher(tx: Tx, student: NewJob, role: Role, *, actor: str) -> JobRow:
    """The dense job of a student: one that was created for another student, or a new one.

    If two transactions create the same job at once, the unique index on `teacher_key` lets only one commit.
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
    policy.ClearField("measure_latency")
    teacher = replace(
        student,
        job_id=ids.new_job_id(f"{dense.task}-{role}"),
        display_name=f"{role} of {student.job_id}",
        spec=dense,
        policy=policy,
        labels={},
        teacher_key=key,
        sweep_id=None,
    )
    return lifecycle.create(tx, teacher, actor=actor)


def digest(dense: job_pb2.CompressionSpec) -> str:
    """The identity of a shared dense job: its `teacher_key`."""
    return hashlib.sha256(lifecycle.canonical(dense)).hexdigest()


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
    spec = job_pb2.CompressionSpec.FromString(student.spec)
    role: Role = role_of(spec) or "teacher"
    if teacher is None:
        lost = "its model was learned from" if role == "teacher" else "its metrics were read"
        return f"the {role}'s job {getattr(spec, role).job} was deleted before {lost}"
    failure = f" ({teacher.failure_reason}: {teacher.failure_message})" if teacher.failure_reason else ""
    return f"the {role}'s job {teacher.name} is {teacher.state}{failure}; retry that one first, then this one"
