"""What becomes of a job at the hands of users: one function a command, each inside the caller's transaction.

All changes to jobs, those of leases.py too, go through `move` and `touch`: state machine, event row, version and
announcement in one place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db.database import Tx
from mvprune_service.db.models import ATTEMPTS, CHECKPOINTS, EVENTS, JOBS, LABELS, REQUESTS
from mvprune_service.db.statements import Insert
from mvprune_service.domain.machine import TERMINAL, Command, JobState, transition
from mvprune_service.ids import JobName, new_uid
from mvprune_service.observability import logs

log = logging.getLogger(__name__)

PRIORITY_POINT = 600 * SECOND  # of waiting
WAITING_FOR_TEACHER = "WAITING_FOR_TEACHER"
_NO_DETAILS: Mapping[str, str] = {}

_INSERT_JOB = Insert(JOBS)
_INSERT_EVENT = Insert(EVENTS)
_INSERT_REQUEST = Insert(REQUESTS)


class StaleLease(Exception):
    """The caller's fencing token is not the live one: whatever it reports must be dropped."""


class NotTerminal(Exception):
    """Only a finished job can be deleted."""


class EtagMismatch(Exception):
    """The job changed since the caller read it."""


@dataclass(frozen=True)
class NewJob:
    """What a job is made from. `policy` has its defaults written out."""

    project: str
    job_id: str
    spec: job_pb2.CompressionSpec
    policy: job_pb2.ExecutionPolicy
    creator: str
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    model_size: job_pb2.ModelSize | None = None
    teacher_uid: str | None = None
    teacher_sha256: str | None = None
    teaches: str | None = None


def lock_job(tx: Tx, uid: str) -> Row[Any] | None:
    """The job's row, held until the transaction ends."""
    return tx.conn.execute(select(JOBS).where(JOBS.c.uid == uid).with_for_update()).one_or_none()


def lock_job_named(tx: Tx, name: JobName) -> Row[Any] | None:
    """As lock_job, by name."""
    found = select(JOBS).where(JOBS.c.project == name.project, JOBS.c.job_id == name.job)
    return tx.conn.execute(found.with_for_update()).one_or_none()


def current_attempt(tx: Tx, job: Row[Any]) -> Row[Any] | None:
    """The job's newest attempt."""
    newest = select(ATTEMPTS).where(ATTEMPTS.c.job_uid == job.uid, ATTEMPTS.c.number == job.attempt)
    return tx.conn.execute(newest).one_or_none()


def create(tx: Tx, new: NewJob, *, actor: str, details: Mapping[str, str] = _NO_DETAILS) -> Row[Any]:
    """∅ → QUEUED."""
    uid = new_uid(tx.now)
    waits = new.teacher_uid is not None and new.teacher_sha256 is None
    row = {
        "uid": uid,
        "project": new.project,
        "job_id": new.job_id,
        "display_name": new.display_name,
        "spec": canonical(new.spec),
        "policy": canonical(new.policy),
        "labels": dict(new.labels),
        "model_size": new.model_size and canonical(new.model_size),
        "creator": new.creator,
        "task": new.spec.task,
        "model": new.spec.model,
        "method": new.spec.WhichOneof("method") or "",
        "priority": new.policy.priority,
        "teacher_uid": new.teacher_uid,
        "teacher_sha256": new.teacher_sha256,
        "teaches": new.teaches,
        "state": JobState.QUEUED,
        "state_reason": WAITING_FOR_TEACHER if waits else "",
        "metrics": {},
        "attempt": 0,
        "attempts_left": new.policy.max_attempts,
        "fencing_token": tx.now,  # not one that a deleted job of this name had: its workers may be alive
        "not_before_us": 0,
        "rank_us": _rank(tx, new.policy.priority),
        "queue_deadline_us": None if waits else queue_deadline(tx, new.policy),
        "ran_us": 0,
        "accumulation_factor": 1,
        "create_us": tx.now,
        "update_us": tx.now,
        "version": 1,
        "last_sequence": 1,
    }
    job = _INSERT_JOB(tx.conn, row)
    if new.labels:
        labels = [
            {"job_uid": uid, "key": key, "value": value, "project": new.project} for key, value in new.labels.items()
        ]
        tx.conn.execute(insert(LABELS), labels)
    _event(tx, uid, 1, "JOB_CREATED", actor, None, JobState.QUEUED, details)
    tx.changed.add(uid)
    tx.after.append(partial(log.info, "created by %s", actor, extra={"about": logs.About(job, 0)}))
    return job


def remember_request(tx: Tx, job: Row[Any], request_id: str, body_sha256: str) -> None:
    """Makes the request id answer with this job from now on."""
    row = {
        "project": job.project,
        "request_id": request_id,
        "body_sha256": body_sha256,
        "job_uid": job.uid,
        "create_us": tx.now,
    }
    _INSERT_REQUEST(tx.conn, row)


def cancel(tx: Tx, job: Row[Any], *, reason: str, grace_us: int, actor: str, etag: str = "") -> Row[Any]:
    """Any live state → CANCELLING (QUEUED → CANCELLED). Raises EtagMismatch, and IllegalTransition for SUCCEEDED and
    FAILED."""
    _check_etag(job, etag)
    if job.state in (JobState.CANCELLING, JobState.CANCELLED):
        return job
    move(
        tx,
        job,
        Command.CANCEL,
        actor,
        {"reason": reason} if reason else {},
        cancel_reason=reason,
        cancel_grace_us=grace_us,
        cancel_us=tx.now,
        state_reason="",
    )
    return _reload(tx, job.uid)


def retry(tx: Tx, job: Row[Any], *, actor: str, from_scratch: bool = False, etag: str = "") -> Row[Any]:
    """FAILED, CANCELLED → QUEUED, with all its attempts and its time to run again. Raises EtagMismatch,
    IllegalTransition."""
    _check_etag(job, etag)
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    waits = job.teacher_uid is not None and job.teacher_sha256 is None
    move(
        tx,
        job,
        Command.RETRY,
        actor,
        {"from_scratch": "true"} if from_scratch else {},
        attempts_left=policy.max_attempts,
        not_before_us=0,
        rank_us=_rank(tx, job.priority),
        ran_us=0,
        failure_reason=None,
        failure_message=None,
        gate_results=None,
        state_reason=WAITING_FOR_TEACHER if waits else "",
        progress=None,
        cancel_reason=None,
        cancel_grace_us=None,
        cancel_us=None,
    )
    if from_scratch:
        tx.conn.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.job_uid == job.uid))
    return _reload(tx, job.uid)


def remove(tx: Tx, job: Row[Any], *, etag: str = "") -> None:
    """Deletes a terminal job with its attempts, events, logs and metrics. Raises NotTerminal, EtagMismatch."""
    _check_etag(job, etag)
    if job.state not in TERMINAL:
        raise NotTerminal
    tx.conn.execute(delete(JOBS).where(JOBS.c.uid == job.uid))
    tx.changed.add(job.uid)


def move(tx: Tx, job: Row[Any], command: Command, actor: str, details: Mapping[str, str], **values: Any) -> JobState:
    """Takes a job to another state, with an event. Raises IllegalTransition, StaleLease."""
    state = transition(JobState(job.state), command)
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    if state in TERMINAL:
        values["end_us"] = tx.now
        if policy.HasField("retention"):
            values["expire_us"] = tx.now + policy.retention.ToMicroseconds()
    elif job.state in TERMINAL:
        values["end_us"] = values["expire_us"] = None
    waits = values.get("state_reason") == WAITING_FOR_TEACHER
    values["queue_deadline_us"] = queue_deadline(tx, policy) if state is JobState.QUEUED and not waits else None
    sequence = job.last_sequence + 1
    touch(tx, job, state=state, last_sequence=sequence, **values)
    _event(tx, job.uid, sequence, command.value, actor, JobState(job.state), state, details)
    about = logs.About(job, values.get("attempt", job.attempt))
    tx.after.append(partial(log.info, "%s -> %s by %s", job.state, state, actor, extra={"about": about}))
    return state


def touch(tx: Tx, job: Row[Any], **values: Any) -> None:
    """Changes a job within its state. Raises StaleLease."""
    # The token in WHERE is the fence itself: a job that moved on meanwhile matches no row.
    result = tx.conn.execute(
        update(JOBS)
        .where(JOBS.c.uid == job.uid, JOBS.c.version == job.version, JOBS.c.fencing_token == job.fencing_token)
        .values(version=job.version + 1, update_us=tx.now, **values)
    )
    if result.rowcount != 1:
        raise StaleLease("the job changed meanwhile")
    tx.changed.add(job.uid)


def waiting(tx: Tx, uid: str, reason: str) -> None:
    """Says why a queued job waits."""
    job = lock_job(tx, uid)
    if job is not None and job.state == JobState.QUEUED and job.state_reason != reason:
        touch(tx, job, state_reason=reason)


def queue_deadline(tx: Tx, policy: job_pb2.ExecutionPolicy) -> int | None:
    """Until when a job that enters the queue now may wait in it."""
    return tx.now + policy.max_queue_time.ToMicroseconds() if policy.HasField("max_queue_time") else None


def canonical(message: Any) -> bytes:
    """A message as it is stored: equal messages have equal bytes."""
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _rank(tx: Tx, priority: int) -> int:
    return tx.now - priority * PRIORITY_POINT


def _check_etag(job: Row[Any], etag: str) -> None:
    if etag and etag != str(job.version):
        raise EtagMismatch


def _event(
    tx: Tx,
    job_uid: str,
    sequence: int,
    kind: str,
    actor: str,
    source: JobState | None,
    target: JobState,
    details: Mapping[str, str],
) -> None:
    row = {
        "job_uid": job_uid,
        "sequence": sequence,
        "time_us": tx.now,
        "type": kind,
        "actor": actor,
        "from_state": source,
        "to_state": target,
        "details": dict(details),
    }
    _INSERT_EVENT(tx.conn, row)


def _reload(tx: Tx, uid: str) -> Row[Any]:
    return tx.conn.execute(select(JOBS).where(JOBS.c.uid == uid)).one()
