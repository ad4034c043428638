"""Attempts of a job: their leases, checkpoints and outcomes.

Each function is one command inside the caller's transaction. What a worker reports is fenced: it is written only while
the job's fencing token is the worker's. domain/leases.py and domain/retries.py decide; this module reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, insert, select, update

from mvprune.v1 import job_pb2
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_all
from mvprune_service.db.lifecycle import (
    canonical,
    current_attempt,
    fail,
    go_behind,
    lock_job,
    lock_job_named,
    move,
    note,
    touch,
)
from mvprune_service.db.sweep_results import take_in_late
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS, AttemptRow, CheckpointRow
from mvprune_service.db.tables.jobs import EVENTS, JobRow
from mvprune_service.domain import gates, times
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.leases import StaleLease, check_claimed, check_fence, is_claimed
from mvprune_service.domain.machine import TERMINAL, AttemptState, Command, IllegalTransition, JobState, Wait
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure, Kill, Tried, earlier_kills, ran_us, smaller_factor, verdict
from mvprune_service.ids import AttemptName, JobName, new_uid
from mvprune_service.observability import metrics

WORKER = "worker"
_MOST_NOTES, _LONGEST_NOTE = 50, 1000  # of a result: a job is sent often
KEPT_CHECKPOINTS = 2  # of a job: the newest, and one more in case the newest is unreadable
# First in this order, whatever the clocks of the servers said that recorded them.
NEWEST_CHECKPOINT = (ATTEMPTS.c.number.desc(), CHECKPOINTS.c.step.desc())


@dataclass(frozen=True)
class Fence:
    """The attempt that a worker carries, and its fencing token."""

    attempt: AttemptName
    token: int


def schedule(
    tx: Tx, uid: str, reserved: Reserved, *, executor: str, start_timeout_us: int, waits_for: str = ""
) -> bool:
    """QUEUED → STARTING with a new attempt. False if the job is no longer queued.

    Args:
        waits_for: the type of the node that has to be added for it, "" if there is one.
    """
    job = lock_job(tx, uid)
    if job is None or job.state != JobState.QUEUED:
        return False
    number, token, attempt_uid = job.attempt + 1, job.fencing_token + 1, new_uid(tx.now)
    tx.conn.execute(
        insert(ATTEMPTS).values(
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
            parts=reserved.parts,
            node=waits_for,  # until a worker says where it runs
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
        {"attempt": str(number), **({"waits_for": waits_for} if waits_for else {})},
        attempt=number,
        attempts_left=job.attempts_left - 1,
        fencing_token=token,
        state_reason=Wait.NODE if waits_for else "",
    )
    if job.sweep_id is not None:
        go_behind(tx, job)
    return True


def submitted(tx: Tx, attempt_uid: str) -> None:
    """The executor has the attempt."""
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt_uid, ATTEMPTS.c.state == AttemptState.CREATED)
        .values(state=AttemptState.SUBMITTED, failure_message=None)
    )


def refused(tx: Tx, attempt_uid: str, why: str) -> None:
    """Records why the executor does not start the attempt yet: the message of a START_TIMEOUT."""
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt_uid, ATTEMPTS.c.state == AttemptState.CREATED)
        .values(failure_message=why)
    )


def silent(tx: Tx, fence: Fence, why: str, *, actor: str) -> None:
    """Records, once, that the attempt's worker runs and has not called: in the job's events, and as the message of a
    START_TIMEOUT. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if job.state is not JobState.STARTING or attempt.failure_message is not None:
        return
    note(tx, job, "WORKER_SILENT", actor, {"message": why, "attempt": str(attempt.number)}, state_reason=Wait.WORKER)
    tx.conn.execute(update(ATTEMPTS).where(ATTEMPTS.c.uid == attempt.uid).values(failure_message=why))


def claim(tx: Tx, fence: Fence, *, runner_id: str, node: str, lease_us: int) -> tuple[JobRow, AttemptRow]:
    """STARTING → RUNNING. Repeated by the same runner it changes nothing. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if is_claimed(attempt.state, attempt.runner_id, runner_id):
        return job, attempt
    _report(tx, job, Command.CLAIM, WORKER, {"node": node}, start_us=job.start_us or tx.now, state_reason="")
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt.uid)
        .values(
            state=AttemptState.RUNNING,
            runner_id=runner_id,
            node=node,
            failure_message=None,
            start_us=tx.now,
            heartbeat_us=tx.now,
            lease_expire_us=tx.now + lease_us,
        )
    )
    return lock_job(tx, job.uid) or job, attempt


def turn_away(tx: Tx, fence: Fence, failure: Failure) -> None:
    """Ends an attempt whose worker cannot do it, before the worker has the lease. Raises StaleLease."""
    job, _ = fenced(tx, fence)
    if job.state not in (JobState.STARTING, JobState.CANCELLING):
        raise StaleLease("another worker holds the lease")
    fail_attempt(tx, fence, failure, actor=WORKER)


def offer(tx: Tx, fence: Fence, manifest_sha256: str, *, actor: str) -> None:
    """RUNNING → FINALIZING; STARTING too if it is not the worker that says so. Repeating it is harmless. Raises
    StaleLease."""
    job, attempt = fenced(tx, fence)
    if actor == WORKER:
        check_claimed(attempt.state)
    if attempt.manifest_sha256 == manifest_sha256:
        return
    _report(tx, job, Command.OFFER, actor, {"manifest": manifest_sha256})
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt.uid)
        .values(manifest_sha256=manifest_sha256, lease_expire_us=None)
    )


def publish(tx: Tx, uid: str, attempt_uid: str, manifest: dict[str, Any], manifest_bytes: int) -> bool:
    """FINALIZING → SUCCEEDED (or CANCELLING: a complete result wins) with the artifact's row. A job whose result misses
    a gate with fail_job becomes FAILED. Returns whether the artifact was published; False if it was before."""
    job = lock_job(tx, uid)
    attempt = current_attempt(tx, job) if job is not None else None
    if job is None or attempt is None or attempt.uid != attempt_uid or job.state in TERMINAL:
        return False
    sha256 = attempt.manifest_sha256
    if sha256 is None:
        return False
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    results = gates.evaluate(policy.gates, gates.observations(manifest, manifest_bytes))
    notes = [str(note)[:_LONGEST_NOTE] for note in manifest.get("notes", ())[:_MOST_NOTES]]
    recorded = canonical(job_pb2.Job(gate_results=results, notes=notes)) if results or notes else None
    message = gates.failure(results)
    if message is not None:
        touch(tx, job, gate_results=recorded)
        fence = Fence(AttemptName(job.project, job.job_id, attempt.number), job.fencing_token)
        fail_attempt(tx, fence, Failure(FailureReason.GATE_FAILED, message), actor="finalizer")
        return False
    _add_artifact(tx, job, attempt.number, sha256, manifest, manifest_bytes)
    _end_attempt(tx, attempt, AttemptState.SUCCEEDED)
    move(
        tx,
        job,
        Command.PUBLISH,
        "finalizer",
        {"artifact": sha256} | ({"gates": gates.outcome(results)} if results else {}),
        artifact_sha256=sha256,
        **metric_columns(manifest),
        gate_results=recorded,
        fencing_token=job.fencing_token + 1,
        state_reason="",
    )
    take_in_late(tx, job, actor="finalizer")
    return True


def metric_columns(manifest: dict[str, Any]) -> dict[str, Any]:
    """The columns of a job that its artifact's manifest determines."""
    metrics, primary = manifest["metrics"], manifest["primary_metric"]
    return {
        "metrics": metrics,
        "primary_metric": primary,
        "metric": metrics.get(f"eval/{primary}"),
        "difference": metrics.get(f"delta/{primary}"),
    }


def fail_attempt(tx: Tx, fence: Fence, failure: Failure, *, actor: str) -> None:
    """Ends an attempt that failed, and does with its job what `verdict` decides. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    spec = job_pb2.CompressionSpec.FromString(job.spec)
    tried = Tried(
        state=job.state,
        number=attempt.number,
        attempts_left=job.attempts_left,
        factor=job.accumulation_factor,
        smaller=smaller_factor(spec, job.accumulation_factor),
        kills=_earlier_kills(tx.conn, job.uid) if failure.kill else (),
    )
    follows = verdict(tried, failure)
    if follows.command is Command.STOPPED:
        stopped(tx, fence, actor=actor)
        return
    reason = failure.reason
    _end_attempt(tx, attempt, follows.attempt_state, reason, follows.cause)
    details = {"reason": reason.value, "message": follows.cause, "attempt": str(attempt.number)}
    details |= failure.kill.details if failure.kill else {}
    token, ran = job.fencing_token + 1, ran_us(job.ran_us, attempt.start_us, tx.now)
    if follows.command is Command.FAIL:
        fail(tx, job, reason, follows.message, actor=actor, details=details, fencing_token=token, ran_us=ran)
        return
    move(
        tx,
        job,
        Command.REQUEUE,
        actor,
        details,
        attempts_left=follows.attempts_left,
        fencing_token=token,
        not_before_us=tx.now + follows.back_off_us,
        accumulation_factor=follows.factor,
        ran_us=ran,
        state_reason=reason.value,
        progress=None,
    )


def commit_checkpoint(tx: Tx, fence: Fence, *, step: int, manifest_sha256: str) -> None:
    """Records a checkpoint that is complete in the store: the job can resume from it. Repeating it is harmless. Raises
    StaleLease."""
    job, attempt = fenced(tx, fence)
    check_claimed(attempt.state)
    known = select(CHECKPOINTS.c.step).where(CHECKPOINTS.c.attempt_uid == attempt.uid, CHECKPOINTS.c.step == step)
    if tx.conn.execute(known).one_or_none() is None:
        tx.conn.execute(
            insert(CHECKPOINTS).values(
                attempt_uid=attempt.uid,
                step=step,
                job_uid=job.uid,
                manifest_sha256=manifest_sha256,
                create_us=tx.now,
            )
        )


def checkpoints_of(conn: Connection, job_uid: str) -> list[CheckpointRow]:
    """The checkpoints that the job can resume from, the newest first."""
    newest = (
        select(CHECKPOINTS)
        .join(ATTEMPTS, ATTEMPTS.c.uid == CHECKPOINTS.c.attempt_uid)
        .where(CHECKPOINTS.c.job_uid == job_uid)
        .order_by(*NEWEST_CHECKPOINT)
    )
    return fetch_all(conn, CheckpointRow, newest.limit(KEPT_CHECKPOINTS))


def stopped(tx: Tx, fence: Fence, *, actor: str) -> None:
    """CANCELLING → CANCELLED: the attempt's process has ended. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    _report(tx, job, Command.STOPPED, actor, {}, fencing_token=job.fencing_token + 1)
    _end_attempt(tx, attempt, AttemptState.CANCELLED)


def fenced(tx: Tx, fence: Fence) -> tuple[JobRow, AttemptRow]:
    """The job and its newest attempt, if the fence is theirs. Raises StaleLease."""
    job = lock_job_named(tx, JobName(fence.attempt.project, fence.attempt.job))
    attempt = current_attempt(tx, job) if job is not None else None
    if job is None or attempt is None:
        raise StaleLease("no such attempt")
    check_fence(fence.attempt.number, fence.token, newest=attempt.number, current=job.fencing_token)
    return job, attempt


def _report(tx: Tx, job: JobRow, command: Command, actor: str, details: dict[str, str], **values: Any) -> None:
    """Moves a job as an attempt's worker, or a loop in its place, reports. Raises StaleLease if the job moved on."""
    try:
        move(tx, job, command, actor, details, **values)
    except IllegalTransition as error:
        raise StaleLease(str(error)) from None


def _end_attempt(
    tx: Tx, attempt: AttemptRow, state: AttemptState, reason: FailureReason | None = None, message: str | None = None
) -> None:
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt.uid, ATTEMPTS.c.fencing_token == attempt.fencing_token)
        .values(state=state, end_us=tx.now, lease_expire_us=None, failure_reason=reason, failure_message=message)
    )
    tx.after.append(partial(metrics.attempt_ended, state.value, reason.value if reason else ""))


def _earlier_kills(conn: Connection, job_uid: str) -> list[Kill]:
    events = conn.execute(
        select(EVENTS.c.type, EVENTS.c.details)
        .where(EVENTS.c.job_uid == job_uid, EVENTS.c.type.in_((Command.REQUEUE, Command.RETRY)))
        .order_by(EVENTS.c.sequence.desc())
    )
    return earlier_kills((event.type, event.details) for event in events)


def _add_artifact(
    tx: Tx, job: JobRow, attempt: int, sha256: str, manifest: dict[str, Any], manifest_bytes: int
) -> None:
    """Two jobs that make the same artifact share its row: it is kept for as long as one of them asks for."""
    expire = times.expire_us(tx.now, job_pb2.ExecutionPolicy.FromString(job.policy))
    is_it = (ARTIFACTS.c.project == job.project, ARTIFACTS.c.sha256 == sha256)
    known = tx.conn.execute(select(ARTIFACTS.c.expire_us).where(*is_it).with_for_update()).one_or_none()
    if known is None:
        tx.conn.execute(
            insert(ARTIFACTS).values(
                project=job.project,
                sha256=sha256,
                job_uid=job.uid,
                attempt=attempt,
                manifest_bytes=manifest_bytes,
                manifest=manifest,
                create_us=tx.now,
                expire_us=expire,
            )
        )
    elif known.expire_us is not None and (expire is None or expire > known.expire_us):
        tx.conn.execute(update(ARTIFACTS).where(*is_it).values(expire_us=expire))
