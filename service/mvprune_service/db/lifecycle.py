"""Commands of users on a job: one function for each command, inside the caller's transaction.

All changes to jobs, those of leases.py too, go through `move` and `touch`: the state machine, the event, the version
and the announcement are in one place.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import delete, insert, select, update

from mvprune.v1 import job_pb2
from mvprune_service.db import outbox
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Insert, fetch_one
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS, AttemptRow
from mvprune_service.db.tables.jobs import EVENTS, JOBS, LABELS, REQUESTS, EventRow, JobRow, RequestRow
from mvprune_service.db.upload_uses import use_in_job
from mvprune_service.domain import times
from mvprune_service.domain.failures import RULES, FailureReason
from mvprune_service.domain.leases import StaleLease
from mvprune_service.domain.machine import TERMINAL, Command, JobState, Wait, transition
from mvprune_service.domain.teaching import waits_for_teacher
from mvprune_service.domain.uploading import references
from mvprune_service.ids import JobName, new_uid
from mvprune_service.observability import logs, metrics

log = logging.getLogger(__name__)

_NO_DETAILS: Mapping[str, str] = {}

_INSERT_JOB = Insert(JobRow, JOBS)
_INSERT_EVENT = Insert(EventRow, EVENTS)
_INSERT_REQUEST = Insert(RequestRow, REQUESTS)


class NotTerminal(Exception):
    """Only a finished job can be deleted."""


class EtagMismatch(Exception):
    """The job changed since the caller read it."""


@dataclass(frozen=True)
class NewJob:
    """The content of a new job. `policy` includes the defaults.

    Attributes:
        base_upload: the upload that the artifact of its teacher is a delta of, "" if it needs none.
    """

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
    teacher_key: str | None = None
    sweep_id: str | None = None
    base_upload: str = ""


def lock_job(tx: Tx, uid: str) -> JobRow | None:
    """The row of a job, locked until the transaction ends."""
    return fetch_one(tx.conn, JobRow, select(JOBS).where(JOBS.c.uid == uid).with_for_update())


def lock_job_named(tx: Tx, name: JobName) -> JobRow | None:
    """As lock_job, by name."""
    found = select(JOBS).where(JOBS.c.project == name.project, JOBS.c.job_id == name.job)
    return fetch_one(tx.conn, JobRow, found.with_for_update())


def current_attempt(tx: Tx, job: JobRow) -> AttemptRow | None:
    """The job's newest attempt."""
    newest = select(ATTEMPTS).where(ATTEMPTS.c.job_uid == job.uid, ATTEMPTS.c.number == job.attempt)
    return fetch_one(tx.conn, AttemptRow, newest)


def create(tx: Tx, new: NewJob, *, actor: str, details: Mapping[str, str] = _NO_DETAILS) -> JobRow:
    """∅ → QUEUED. Raises NoUpload."""
    uid = new_uid(tx.now)
    waits = waits_for_teacher(new.teacher_uid, new.teacher_sha256)
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
        "teacher_key": new.teacher_key,
        "sweep_id": new.sweep_id,
        "state": JobState.QUEUED,
        "state_reason": Wait.TEACHER if waits else "",
        "metrics": {},
        "attempt": 0,
        "attempts_left": new.policy.max_attempts,
        "fencing_token": tx.now,  # differs from that of a deleted job of this name, whose workers may still run
        "not_before_us": 0,
        "rank_us": times.rank_us(tx.now, new.policy.priority),
        "queue_deadline_us": times.queue_deadline_us(tx.now, new.policy, waits=waits),
        "ran_us": 0,
        "accumulation_factor": 1,
        "create_us": tx.now,
        "update_us": tx.now,
        "version": 1,
        "last_sequence": 1,
    }
    job = _INSERT_JOB(tx.conn, row)
    add_labels(tx, uid, new.project, new.labels)
    uses = {*references(new.spec).values(), new.base_upload} - {""}
    if uses:
        use_in_job(tx, uid, new.project, uses)
    _event(tx, uid, 1, "JOB_CREATED", actor, None, JobState.QUEUED, details)
    outbox.job_moved(tx, job, 1, None, JobState.QUEUED, {})
    tx.changed.add(uid)
    tx.new.add(uid)
    tx.after.append(partial(log.info, "created by %s", actor, extra={"about": logs.About(job, 0)}))
    return job


def add_labels(tx: Tx, uid: str, project: str, labels: Mapping[str, str]) -> None:
    """Makes a job's labels known to filters and orders. The job has none there."""
    if labels:
        rows = [{"job_uid": uid, "key": key, "value": value, "project": project} for key, value in labels.items()]
        tx.conn.execute(insert(LABELS), rows)


def remember_request(tx: Tx, job: JobRow, request_id: str, body_sha256: str) -> None:
    """From now on a request with this id returns this job."""
    row = {
        "project": job.project,
        "request_id": request_id,
        "body_sha256": body_sha256,
        "job_uid": job.uid,
        "create_us": tx.now,
    }
    _INSERT_REQUEST(tx.conn, row)


def cancel(tx: Tx, job: JobRow, *, reason: str, grace_us: int, actor: str, etag: str = "") -> JobRow:
    """Any live state → CANCELLING (QUEUED → CANCELLED). Raises EtagMismatch, and IllegalTransition for SUCCEEDED and
    FAILED."""
    check_etag(job, etag)
    if transition(job.state, Command.CANCEL) is job.state:  # it was asked for before
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
    return reload(tx, job.uid)


def retry(tx: Tx, job: JobRow, *, actor: str, from_scratch: bool = False, etag: str = "") -> JobRow:
    """FAILED, CANCELLED → QUEUED, with all its attempts and its time to run again. Raises EtagMismatch,
    IllegalTransition."""
    check_etag(job, etag)
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    waits = waits_for_teacher(job.teacher_uid, job.teacher_sha256)
    move(
        tx,
        job,
        Command.RETRY,
        actor,
        {"from_scratch": "true"} if from_scratch else {},
        attempts_left=policy.max_attempts,
        not_before_us=0,
        rank_us=times.rank_us(tx.now, job.priority),
        ran_us=0,
        failure_reason=None,
        failure_message=None,
        gate_results=None,
        state_reason=Wait.TEACHER if waits else "",
        progress=None,
        cancel_reason=None,
        cancel_grace_us=None,
        cancel_us=None,
    )
    if from_scratch:
        tx.conn.execute(delete(CHECKPOINTS).where(CHECKPOINTS.c.job_uid == job.uid))
    return reload(tx, job.uid)


def remove(tx: Tx, job: JobRow, *, etag: str = "") -> None:
    """Deletes a terminal job with its attempts, events, logs and metrics. Raises NotTerminal, EtagMismatch."""
    check_etag(job, etag)
    if job.state not in TERMINAL:
        raise NotTerminal
    tx.conn.execute(delete(JOBS).where(JOBS.c.uid == job.uid))
    tx.changed.add(job.uid)


def move(tx: Tx, job: JobRow, command: Command, actor: str, details: Mapping[str, str], **values: Any) -> JobState:
    """Takes a job to another state, with an event. Raises IllegalTransition, StaleLease."""
    state = transition(job.state, command)
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    waits = values.get("state_reason") == Wait.TEACHER
    sequence = job.last_sequence + 1
    changed = times.after_move(job.state, state, policy, tx.now, start_us=job.start_us, waits=waits)
    touch(tx, job, state=state, last_sequence=sequence, **changed, **values)
    _event(tx, job.uid, sequence, command.value, actor, job.state, state, details)
    outbox.job_moved(tx, job, sequence, job.state, state, values)
    about = logs.About(job, values.get("attempt", job.attempt))
    tx.after.append(partial(log.info, "%s -> %s by %s", job.state, state, actor, extra={"about": about}))
    if state in TERMINAL:
        tx.after.append(partial(metrics.job_ended, job.task, state.value, str(values.get("failure_reason") or "")))
    return state


def note(tx: Tx, job: JobRow, kind: str, actor: str, details: Mapping[str, str], **values: Any) -> None:
    """Adds an event within a job's state. Raises StaleLease."""
    sequence = job.last_sequence + 1
    touch(tx, job, last_sequence=sequence, **values)
    _event(tx, job.uid, sequence, kind, actor, None, job.state, details)


def fail(
    tx: Tx,
    job: JobRow,
    reason: FailureReason,
    message: str = "",
    *,
    actor: str,
    details: Mapping[str, str] = _NO_DETAILS,
    **values: Any,
) -> None:
    """→ FAILED. Raises IllegalTransition, StaleLease.

    Args:
        message: "" for the text of the reason.
        details: of the event, in place of the message and beside the reason.
    """
    why = message or RULES[reason].text
    move(
        tx,
        job,
        Command.FAIL,
        actor,
        {"reason": reason.value, "message": why, **details},
        failure_reason=reason,
        failure_message=why,
        state_reason=reason.value,
        **values,
    )


def touch(tx: Tx, job: JobRow, **values: Any) -> None:
    """Changes a job within its state. Raises StaleLease."""
    # The token in WHERE is the fence: a job that has changed meanwhile matches no row.
    result = tx.conn.execute(
        update(JOBS)
        .where(JOBS.c.uid == job.uid, JOBS.c.version == job.version, JOBS.c.fencing_token == job.fencing_token)
        .values(version=job.version + 1, update_us=tx.now, **values)
    )
    if result.rowcount != 1:
        raise StaleLease("the job changed meanwhile")
    tx.changed.add(job.uid)
    tx.new.discard(job.uid)


def go_behind(tx: Tx, started: JobRow) -> None:
    """A job of a sweep has started: the others of the sweep that are queued go behind all jobs that are queued now. So
    a job beside the sweep waits for one run of the sweep's jobs at most, however many of them are queued."""
    siblings = (JOBS.c.project == started.project, JOBS.c.sweep_id == started.sweep_id, JOBS.c.state == JobState.QUEUED)
    behind = times.rank_us(tx.now, started.priority)
    tx.conn.execute(update(JOBS).where(*siblings, JOBS.c.rank_us < behind).values(rank_us=behind))


def set_waiting(tx: Tx, uid: str, reason: Wait) -> None:
    """Records why a queued job waits."""
    job = lock_job(tx, uid)
    if job is not None and job.state is JobState.QUEUED and job.state_reason != reason:
        touch(tx, job, state_reason=reason)


def canonical(message: Any) -> bytes:
    """The stored form of a message: equal messages have equal bytes."""
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def check_etag(job: JobRow, etag: str) -> None:
    """Raises EtagMismatch if a caller has read another version of the job; "" is any."""
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


def reload(tx: Tx, uid: str) -> JobRow:
    """The row of a job after its change."""
    return JobRow._make(tx.conn.execute(select(JOBS).where(JOBS.c.uid == uid)).one())
