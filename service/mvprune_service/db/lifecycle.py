"""Every change to a job or an attempt: one function a command, each inside the caller's transaction.

All go through `move`: state machine, event row, version and announcement in one place. Writes on behalf of a worker
are fenced: they apply only while the job's fencing token is the worker's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from mvprune_service.clock import SECOND
from mvprune_service.db.database import Tx
from mvprune_service.db.models import ArtifactRow, AttemptRow, EventRow, JobRow, RequestRow
from mvprune_service.domain.failures import RULES, FailureReason
from mvprune_service.domain.machine import (
    TERMINAL,
    AttemptState,
    Command,
    IllegalTransition,
    JobState,
    transition,
)
from mvprune_service.ids import AttemptName, JobName, new_uid

_BACK_OFF = 5 * SECOND
_BACK_OFF_CAP = 300 * SECOND

_jobs = JobRow.__table__
_attempts = AttemptRow.__table__


class StaleLease(Exception):
    """The caller's fencing token is not the live one: whatever it reports must be dropped."""


class NotTerminal(Exception):
    """Only a finished job can be deleted."""


class EtagMismatch(Exception):
    """The job changed since the caller read it."""


@dataclass(frozen=True)
class Reserved:
    """What an attempt is given."""

    cpus: float
    gpus: float
    memory_bytes: int


@dataclass(frozen=True)
class Fence:
    """Who a worker says it is."""

    attempt: AttemptName
    token: int


def lock_job(tx: Tx, uid: str) -> Row[Any] | None:
    """The job's row, held until the transaction ends."""
    return tx.conn.execute(select(_jobs).where(JobRow.uid == uid).with_for_update()).one_or_none()


def lock_job_named(tx: Tx, name: JobName) -> Row[Any] | None:
    """As lock_job, by name."""
    found = select(_jobs).where(JobRow.project == name.project, JobRow.job_id == name.job)
    return tx.conn.execute(found.with_for_update()).one_or_none()


def current_attempt(tx: Tx, job: Row[Any]) -> Row[Any] | None:
    """The job's newest attempt."""
    newest = select(_attempts).where(AttemptRow.job_uid == job.uid, AttemptRow.number == job.attempt)
    return tx.conn.execute(newest).one_or_none()


def create(tx: Tx, values: dict[str, Any], *, max_attempts: int, actor: str) -> Row[Any]:
    """∅ → QUEUED. `values`: name, spec, policy, labels, model size."""
    uid = new_uid(tx.now)
    row = {
        "state": JobState.QUEUED,
        "state_reason": "",
        "metrics": {},
        "attempt": 0,
        "attempts_left": max_attempts,
        "fencing_token": 0,
        "not_before_us": 0,
        "create_us": tx.now,
        "update_us": tx.now,
        "version": 1,
        "last_sequence": 1,
        **values,
        "uid": uid,
    }
    tx.conn.execute(insert(JobRow).values(row))
    _event(tx, uid, 1, "JOB_CREATED", actor, None, JobState.QUEUED, {})
    tx.changed.add(uid)
    return _reload(tx, uid)


def remember_request(tx: Tx, job: Row[Any], request_id: str, body_sha256: str) -> None:
    """Makes the request id answer with this job from now on."""
    tx.conn.execute(
        insert(RequestRow).values(
            project=job.project,
            request_id=request_id,
            body_sha256=body_sha256,
            job_uid=job.uid,
            create_us=tx.now,
        )
    )


def schedule(tx: Tx, uid: str, reserved: Reserved, *, executor: str, start_timeout_us: int) -> bool:
    """QUEUED → STARTING with a new attempt. False if the job is no longer queued."""
    job = lock_job(tx, uid)
    if job is None or job.state != JobState.QUEUED:
        return False
    number, token, attempt_uid = job.attempt + 1, job.fencing_token + 1, new_uid(tx.now)
    tx.conn.execute(
        insert(AttemptRow).values(
            uid=attempt_uid,
            job_uid=uid,
            number=number,
            state=AttemptState.CREATED,
            fencing_token=token,
            executor=executor,
            executor_ref=f"mvprune-{attempt_uid}",
            cpus=reserved.cpus,
            gpus=reserved.gpus,
            memory_bytes=reserved.memory_bytes,
            node="",
            log_bytes=0,
            create_us=tx.now,
            start_deadline_us=tx.now + start_timeout_us,
        )
    )
    move(
        tx,
        job,
        Command.SCHEDULE,
        "scheduler",
        {"attempt": str(number)},
        attempt=number,
        attempts_left=job.attempts_left - 1,
        fencing_token=token,
        state_reason="",
    )
    return True


def waiting(tx: Tx, uid: str, reason: str) -> None:
    """Says why a queued job waits."""
    job = lock_job(tx, uid)
    if job is not None and job.state == JobState.QUEUED and job.state_reason != reason:
        touch(tx, job, state_reason=reason)


def submitted(tx: Tx, attempt_uid: str) -> None:
    """The executor has the attempt."""
    tx.conn.execute(
        update(AttemptRow)
        .where(AttemptRow.uid == attempt_uid, AttemptRow.state == AttemptState.CREATED)
        .values(state=AttemptState.SUBMITTED)
    )


def claim(tx: Tx, fence: Fence, *, runner_id: str, node: str, lease_us: int) -> tuple[Row[Any], Row[Any]]:
    """STARTING → RUNNING. Repeated by the same runner it changes nothing. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if attempt.state == AttemptState.RUNNING:
        if attempt.runner_id != runner_id:
            raise StaleLease("another worker holds the lease")
        return job, attempt
    try:
        move(tx, job, Command.CLAIM, "worker", {"node": node}, start_us=job.start_us or tx.now)
    except IllegalTransition as error:
        raise StaleLease(str(error)) from None
    tx.conn.execute(
        update(AttemptRow)
        .where(AttemptRow.uid == attempt.uid)
        .values(
            state=AttemptState.RUNNING,
            runner_id=runner_id,
            node=node,
            start_us=tx.now,
            heartbeat_us=tx.now,
            lease_expire_us=tx.now + lease_us,
        )
    )
    return _reload(tx, job.uid), attempt


def heartbeat(tx: Tx, fence: Fence, *, progress: bytes | None, lease_us: int) -> Row[Any]:
    """Extends the lease; returns the job. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if attempt.state != AttemptState.RUNNING:
        raise StaleLease("the attempt was never claimed")
    if job.state in (JobState.RUNNING, JobState.CANCELLING):
        extended = update(AttemptRow).where(AttemptRow.uid == attempt.uid)
        tx.conn.execute(extended.values(heartbeat_us=tx.now, lease_expire_us=tx.now + lease_us))
    if progress is not None and progress != job.progress:
        touch(tx, job, progress=progress)
    return job


def offer(tx: Tx, fence: Fence, manifest_sha256: str, *, actor: str) -> None:
    """RUNNING → FINALIZING. Repeating it is harmless. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if attempt.manifest_sha256 == manifest_sha256:
        return
    try:
        move(tx, job, Command.OFFER, actor, {"manifest": manifest_sha256})
    except IllegalTransition as error:
        raise StaleLease(str(error)) from None
    tx.conn.execute(
        update(AttemptRow)
        .where(AttemptRow.uid == attempt.uid)
        .values(manifest_sha256=manifest_sha256, lease_expire_us=None)
    )


def publish(tx: Tx, uid: str, attempt_uid: str, manifest: dict[str, Any], manifest_bytes: int) -> None:
    """FINALIZING → SUCCEEDED (or CANCELLING: a whole result wins) with the artifact's row. Once."""
    job = lock_job(tx, uid)
    attempt = current_attempt(tx, job) if job is not None else None
    if job is None or attempt is None or attempt.uid != attempt_uid or job.state in TERMINAL:
        return
    sha256 = attempt.manifest_sha256
    known = select(ArtifactRow.sha256).where(ArtifactRow.project == job.project, ArtifactRow.sha256 == sha256)
    if tx.conn.execute(known).one_or_none() is None:
        tx.conn.execute(
            insert(ArtifactRow).values(
                project=job.project,
                sha256=sha256,
                job_uid=uid,
                attempt=attempt.number,
                manifest_bytes=manifest_bytes,
                manifest=manifest,
                create_us=tx.now,
            )
        )
    _end_attempt(tx, attempt, AttemptState.SUCCEEDED)
    move(
        tx,
        job,
        Command.PUBLISH,
        "finalizer",
        {"artifact": sha256},
        artifact_sha256=sha256,
        metrics=manifest["metrics"],
        fencing_token=job.fencing_token + 1,
        state_reason="",
    )


def fail_attempt(tx: Tx, fence: Fence, reason: FailureReason, message: str, *, actor: str, lost: bool = False) -> None:
    """Ends an attempt that failed: back to the queue if that may help, else FAILED. A job that is being cancelled
    becomes CANCELLED. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    rule = RULES[reason]
    message = message or rule.text
    if job.state == JobState.CANCELLING:
        stopped(tx, fence, actor=actor)
        return
    _end_attempt(tx, attempt, AttemptState.LOST if lost else AttemptState.FAILED, reason, message)
    details = {"reason": reason.value, "message": message, "attempt": str(attempt.number)}
    token = job.fencing_token + 1
    if rule.retryable and job.attempts_left > 0 and job.state != JobState.FINALIZING:
        wait = min(_BACK_OFF << min(attempt.number - 1, 10), _BACK_OFF_CAP)
        move(
            tx,
            job,
            Command.REQUEUE,
            actor,
            details,
            fencing_token=token,
            not_before_us=tx.now + wait,
            state_reason=reason.value,
            progress=None,
        )
    else:
        move(
            tx,
            job,
            Command.FAIL,
            actor,
            details,
            fencing_token=token,
            failure_reason=reason,
            failure_message=message,
            state_reason=reason.value,
        )


def stopped(tx: Tx, fence: Fence, *, actor: str) -> None:
    """CANCELLING → CANCELLED: nothing runs any more. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    try:
        move(tx, job, Command.STOPPED, actor, {}, fencing_token=job.fencing_token + 1)
    except IllegalTransition as error:
        raise StaleLease(str(error)) from None
    _end_attempt(tx, attempt, AttemptState.CANCELLED)


def cancel(tx: Tx, job: Row[Any], *, reason: str, grace_us: int, actor: str) -> Row[Any]:
    """Any live state → CANCELLING (QUEUED → CANCELLED). Raises IllegalTransition for SUCCEEDED and FAILED."""
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


def retry(tx: Tx, job: Row[Any], *, max_attempts: int, actor: str) -> Row[Any]:
    """FAILED, CANCELLED → QUEUED. Raises IllegalTransition."""
    move(
        tx,
        job,
        Command.RETRY,
        actor,
        {},
        attempts_left=max_attempts,
        not_before_us=0,
        failure_reason=None,
        failure_message=None,
        state_reason="",
        progress=None,
        cancel_reason=None,
        cancel_grace_us=None,
        cancel_us=None,
    )
    return _reload(tx, job.uid)


def remove(tx: Tx, job: Row[Any], *, etag: str) -> None:
    """Deletes a terminal job with its attempts, events, logs and metrics. Raises NotTerminal, EtagMismatch."""
    if etag and etag != str(job.version):
        raise EtagMismatch
    if job.state not in TERMINAL:
        raise NotTerminal
    tx.conn.execute(delete(RequestRow).where(RequestRow.job_uid == job.uid))
    tx.conn.execute(delete(JobRow).where(JobRow.uid == job.uid))
    tx.changed.add(job.uid)


def fenced(tx: Tx, fence: Fence) -> tuple[Row[Any], Row[Any]]:
    """The job and its newest attempt, if the fence still holds. Raises StaleLease."""
    job = lock_job_named(tx, JobName(fence.attempt.project, fence.attempt.job))
    attempt = current_attempt(tx, job) if job is not None else None
    if job is None or attempt is None:
        raise StaleLease("no such attempt")
    if attempt.number != fence.attempt.number or job.fencing_token != fence.token:
        raise StaleLease(f"attempt {fence.attempt.number} is over")
    return job, attempt


def move(tx: Tx, job: Row[Any], command: Command, actor: str, details: dict[str, str], **values: Any) -> JobState:
    """Takes a job to another state, with an event. Raises IllegalTransition, StaleLease."""
    state = transition(JobState(job.state), command)
    if state in TERMINAL:
        values["end_us"] = tx.now
    elif job.state in TERMINAL:
        values["end_us"] = None
    sequence = job.last_sequence + 1
    touch(tx, job, state=state, last_sequence=sequence, **values)
    _event(tx, job.uid, sequence, command.value, actor, JobState(job.state), state, details)
    return state


def touch(tx: Tx, job: Row[Any], **values: Any) -> None:
    """Changes a job within its state. Raises StaleLease."""
    # The token in WHERE is the fence itself: a job that moved on meanwhile matches no row.
    result = tx.conn.execute(
        update(JobRow)
        .where(JobRow.uid == job.uid, JobRow.version == job.version, JobRow.fencing_token == job.fencing_token)
        .values(version=job.version + 1, update_us=tx.now, **values)
    )
    if result.rowcount != 1:
        raise StaleLease("the job changed meanwhile")
    tx.changed.add(job.uid)


def _end_attempt(
    tx: Tx, attempt: Row[Any], state: AttemptState, reason: FailureReason | None = None, message: str | None = None
) -> None:
    tx.conn.execute(
        update(AttemptRow)
        .where(AttemptRow.uid == attempt.uid, AttemptRow.fencing_token == attempt.fencing_token)
        .values(state=state, end_us=tx.now, lease_expire_us=None, failure_reason=reason, failure_message=message)
    )


def _event(
    tx: Tx,
    job_uid: str,
    sequence: int,
    kind: str,
    actor: str,
    source: JobState | None,
    target: JobState,
    details: dict[str, str],
) -> None:
    tx.conn.execute(
        insert(EventRow).values(
            job_uid=job_uid,
            sequence=sequence,
            time_us=tx.now,
            type=kind,
            actor=actor,
            from_state=source,
            to_state=target,
            details=details,
        )
    )


def _reload(tx: Tx, uid: str) -> Row[Any]:
    return tx.conn.execute(select(_jobs).where(JobRow.uid == uid)).one()
