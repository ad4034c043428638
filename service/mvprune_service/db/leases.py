"""What becomes of a job while workers carry it: attempts, their leases, their checkpoints and outcomes.

Each function is one command inside the caller's transaction. Writes on behalf of a worker are fenced: they apply only
while the job's fencing token is the worker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db.database import Tx
from mvprune_service.db.lifecycle import StaleLease, canonical, current_attempt, lock_job, lock_job_named, move, touch
from mvprune_service.db.models import ARTIFACTS, ATTEMPTS, CHECKPOINTS, EVENTS
from mvprune_service.domain import gates
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import TERMINAL, AttemptState, Command, IllegalTransition, JobState
from mvprune_service.domain.retries import Kill, verdict
from mvprune_service.ids import AttemptName, JobName, new_uid
from mvprune_service.observability import metrics

KEPT_CHECKPOINTS = 2  # of a job: the newest, and one more should that turn out to be unreadable
_BACK_OFF = 5 * SECOND
_BACK_OFF_CAP = 300 * SECOND
_MAX_FACTOR = 64


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


def schedule(tx: Tx, uid: str, reserved: Reserved, *, executor: str, start_timeout_us: int) -> bool:
    """QUEUED → STARTING with a new attempt. False if the job is no longer queued."""
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


def submitted(tx: Tx, attempt_uid: str) -> None:
    """The executor has the attempt."""
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt_uid, ATTEMPTS.c.state == AttemptState.CREATED)
        .values(state=AttemptState.SUBMITTED, failure_message=None)
    )


def refused(tx: Tx, attempt_uid: str, why: str) -> None:
    """The executor does not start the attempt, yet: what is told should its time to start pass."""
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt_uid, ATTEMPTS.c.state == AttemptState.CREATED)
        .values(failure_message=why)
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
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt.uid)
        .values(
            state=AttemptState.RUNNING,
            runner_id=runner_id,
            node=node,
            start_us=tx.now,
            heartbeat_us=tx.now,
            lease_expire_us=tx.now + lease_us,
        )
    )
    return lock_job(tx, job.uid) or job, attempt


def heartbeat(tx: Tx, fence: Fence, *, progress: bytes | None, lease_us: int) -> Row[Any]:
    """Extends the lease; returns the job. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if attempt.state != AttemptState.RUNNING:
        raise StaleLease("the attempt was never claimed")
    if job.state in (JobState.RUNNING, JobState.CANCELLING):
        extended = update(ATTEMPTS).where(ATTEMPTS.c.uid == attempt.uid)
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
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt.uid)
        .values(manifest_sha256=manifest_sha256, lease_expire_us=None)
    )


def publish(tx: Tx, uid: str, attempt_uid: str, manifest: dict[str, Any], manifest_bytes: int) -> bool:
    """FINALIZING → SUCCEEDED (or CANCELLING: a whole result wins) with the artifact's row. Once. A result that misses
    a gate with fail_job is no result: → FAILED, and False."""
    job = lock_job(tx, uid)
    attempt = current_attempt(tx, job) if job is not None else None
    if job is None or attempt is None or attempt.uid != attempt_uid or job.state in TERMINAL:
        return False
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    results = gates.evaluate(policy.gates, gates.observations(manifest, manifest_bytes))
    recorded = canonical(job_pb2.Job(gate_results=results)) if results else None
    fatal = [gates.told(result) for result in results if result.gate.fail_job and not result.passed]
    if fatal:
        touch(tx, job, gate_results=recorded)
        fence = Fence(AttemptName(job.project, job.job_id, attempt.number), job.fencing_token)
        message = f"the result misses a gate: {'; '.join(fatal)}"
        fail_attempt(tx, fence, FailureReason.GATE_FAILED, message, actor="finalizer")
        return False
    sha256 = attempt.manifest_sha256
    _add_artifact(tx, job, attempt, manifest, manifest_bytes)
    _end_attempt(tx, attempt, AttemptState.SUCCEEDED)
    move(
        tx,
        job,
        Command.PUBLISH,
        "finalizer",
        {"artifact": sha256} | ({"gates": gates.outcome(results)} if results else {}),
        artifact_sha256=sha256,
        metrics=manifest["metrics"],
        gate_results=recorded,
        fencing_token=job.fencing_token + 1,
        state_reason="",
    )
    return True


def fail_attempt(
    tx: Tx,
    fence: Fence,
    reason: FailureReason,
    message: str,
    *,
    actor: str,
    lost: bool = False,
    counts: bool = True,
    kill: Kill | None = None,
) -> None:
    """Ends an attempt that failed: back to the queue if that may help, else FAILED. A job that is being cancelled
    becomes CANCELLED. Unless it `counts`, the job has as many attempts left as before it. `kill`: how a signal ended
    it. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    attempts_left = job.attempts_left + (not counts)
    smaller_factor = _smaller_passes(job)
    follows = verdict(
        JobState(job.state),
        reason,
        message,
        attempts_left=attempts_left,
        can_shrink=smaller_factor is not None,
        kills=[kill, *_kills(tx.conn, job.uid)] if kill else (),
    )
    if follows.command is Command.STOPPED:
        stopped(tx, fence, actor=actor)
        return
    why = message or follows.message
    _end_attempt(tx, attempt, AttemptState.LOST if lost else AttemptState.FAILED, reason, why)
    details = {"reason": reason.value, "message": why, "attempt": str(attempt.number), **_kill_details(kill)}
    token = job.fencing_token + 1
    if follows.command is Command.REQUEUE:
        wait = min(_BACK_OFF << min(attempt.number - 1, 10), _BACK_OFF_CAP)
        move(
            tx,
            job,
            Command.REQUEUE,
            actor,
            details,
            attempts_left=attempts_left,
            fencing_token=token,
            not_before_us=tx.now + wait,
            accumulation_factor=smaller_factor if follows.smaller else job.accumulation_factor,
            ran_us=_ran(tx, job, attempt),
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
            ran_us=_ran(tx, job, attempt),
            failure_reason=reason,
            failure_message=follows.message,
            state_reason=reason.value,
        )


def commit_checkpoint(tx: Tx, fence: Fence, *, step: int, manifest_sha256: str) -> None:
    """Makes a checkpoint in the store one to resume from. Repeating it is harmless. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    if attempt.state != AttemptState.RUNNING:
        raise StaleLease("the attempt was never claimed")
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


def checkpoints_of(conn: Connection, job_uid: str) -> Sequence[Row[Any]]:
    """The checkpoints to resume from, the newest first: an attempt could not use those that are older than its own."""
    return conn.execute(
        select(CHECKPOINTS)
        .where(CHECKPOINTS.c.job_uid == job_uid)
        .order_by(CHECKPOINTS.c.create_us.desc(), CHECKPOINTS.c.step.desc())
        .limit(KEPT_CHECKPOINTS)
    ).all()


def stopped(tx: Tx, fence: Fence, *, actor: str) -> None:
    """CANCELLING → CANCELLED: nothing runs any more. Raises StaleLease."""
    job, attempt = fenced(tx, fence)
    try:
        move(tx, job, Command.STOPPED, actor, {}, fencing_token=job.fencing_token + 1)
    except IllegalTransition as error:
        raise StaleLease(str(error)) from None
    _end_attempt(tx, attempt, AttemptState.CANCELLED)


def fenced(tx: Tx, fence: Fence) -> tuple[Row[Any], Row[Any]]:
    """The job and its newest attempt, if the fence still holds. Raises StaleLease."""
    job = lock_job_named(tx, JobName(fence.attempt.project, fence.attempt.job))
    attempt = current_attempt(tx, job) if job is not None else None
    if job is None or attempt is None:
        raise StaleLease("no such attempt")
    if attempt.number != fence.attempt.number or job.fencing_token != fence.token:
        raise StaleLease(f"attempt {fence.attempt.number} is over")
    return job, attempt


def _end_attempt(
    tx: Tx, attempt: Row[Any], state: AttemptState, reason: FailureReason | None = None, message: str | None = None
) -> None:
    tx.conn.execute(
        update(ATTEMPTS)
        .where(ATTEMPTS.c.uid == attempt.uid, ATTEMPTS.c.fencing_token == attempt.fencing_token)
        .values(state=state, end_us=tx.now, lease_expire_us=None, failure_reason=reason, failure_message=message)
    )
    tx.after.append(partial(metrics.attempt_ended, state.value, reason.value if reason else ""))


def _smaller_passes(job: Row[Any]) -> int | None:
    """The accumulation factor for half as many examples in memory; None where the job does not allow it, or each pass
    has one example."""
    spec = job_pb2.CompressionSpec.FromString(job.spec)
    batch, passes = spec.training.batch_size, spec.training.accumulation_steps or 1
    largest = min(_MAX_FACTOR, batch // passes if batch else _MAX_FACTOR)
    factor: int = 2 * job.accumulation_factor
    allowed = job_pb2.ExecutionPolicy.FromString(job.policy).allow_smaller_batch
    return factor if allowed and factor <= largest else None


def _kill_details(kill: Kill | None) -> dict[str, str]:
    """What an event says of a kill: `_kills` reads it."""
    return {"signal": str(kill.signal), "phase": kill.phase, "step": str(kill.step)} if kill else {}


def _kills(conn: Connection, job_uid: str) -> list[Kill]:
    """How signals ended attempts of a job since its user last asked for it."""
    events = conn.execute(
        select(EVENTS.c.type, EVENTS.c.details)
        .where(EVENTS.c.job_uid == job_uid, EVENTS.c.type.in_((Command.REQUEUE, Command.RETRY)))
        .order_by(EVENTS.c.sequence.desc())
    )
    details = [event.details for event in takewhile(lambda event: event.type != Command.RETRY, events.all())]
    return [Kill(int(one["signal"]), one["phase"], int(one["step"])) for one in details if "signal" in one]


def _ran(tx: Tx, job: Row[Any], attempt: Row[Any]) -> int:
    ran: int = job.ran_us
    return ran if attempt.start_us is None else ran + tx.now - attempt.start_us


def _add_artifact(tx: Tx, job: Row[Any], attempt: Row[Any], manifest: dict[str, Any], manifest_bytes: int) -> None:
    """The same artifact, made twice, is one: it is kept for as long as any of its jobs asked for."""
    policy = job_pb2.ExecutionPolicy.FromString(job.policy)
    expire = tx.now + policy.retention.ToMicroseconds() if policy.HasField("retention") else None
    is_it = (ARTIFACTS.c.project == job.project, ARTIFACTS.c.sha256 == attempt.manifest_sha256)
    known = tx.conn.execute(select(ARTIFACTS.c.expire_us).where(*is_it).with_for_update()).one_or_none()
    if known is None:
        tx.conn.execute(
            insert(ARTIFACTS).values(
                project=job.project,
                sha256=attempt.manifest_sha256,
                job_uid=job.uid,
                attempt=attempt.number,
                manifest_bytes=manifest_bytes,
                manifest=manifest,
                create_us=tx.now,
                expire_us=expire,
            )
        )
    elif known.expire_us is not None and (expire is None or expire > known.expire_us):
        tx.conn.execute(update(ARTIFACTS).where(*is_it).values(expire_us=expire))
