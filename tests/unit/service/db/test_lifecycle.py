"""Every change to a job, on a real SQLite: states, fences, events, and what the schema itself refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import IntegrityError
from tests.unit.service.beating import beat
from tests.unit.service.conftest import Jobs, TestClock

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import attempt_logs, leases, lifecycle, records
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.attempts import ATTEMPTS, LOGS, METRICS
from mvprune_service.db.tables.jobs import EVENTS, JOBS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.leases import StaleLease
from mvprune_service.domain.machine import IllegalTransition
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure, Kill
from mvprune_service.ids import ArtifactName, AttemptName, JobName

ROOM = Reserved(1, 0, 0)
SHA = "ab" * 32
METRICS_OF = {"eval/accuracy": 0.5, "delta/accuracy": -0.25, "eval/f1": 0.9}
MANIFEST = {"files": [], "metrics": METRICS_OF, "primary_metric": "accuracy", "accounting": {}}


async def start(db: Database, jobs: Jobs, job_id: str = "a") -> Fence:
    job = await jobs.get(job_id)
    assert await db.write(leases.schedule, job.uid, ROOM, executor="x", start_timeout_us=60 * SECOND)
    live = await jobs.live(job_id)
    return Fence(live.name, live.attempt.fencing_token)


async def run(db: Database, jobs: Jobs, job_id: str = "a") -> Fence:
    fence = await start(db, jobs, job_id)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=15 * SECOND)
    return fence


async def is_over(db: Database, fence: Fence) -> None:
    """The attempt's worker can write nothing any more: no log, no metric."""
    with pytest.raises(StaleLease):
        await db.write(leases.fenced, fence)


async def test_the_way_of_a_job_that_succeeds(db: Database, jobs: Jobs) -> None:
    uid = await jobs.create()
    fence = await run(db, jobs)
    job = await db.write(beat, fence, progress=b"", lease_us=15 * SECOND)
    assert job.state == "RUNNING"
    await db.write(leases.offer, fence, SHA, actor="worker")
    await db.write(leases.offer, fence, SHA, actor="worker")  # the answer was lost: said again
    live = await jobs.live()
    await db.write(leases.publish, uid, live.attempt.uid, MANIFEST, 10)
    await db.write(leases.publish, uid, live.attempt.uid, MANIFEST, 10)
    job = await jobs.get()
    assert (job.state, job.artifact_sha256, job.metrics) == ("SUCCEEDED", SHA, METRICS_OF)
    assert (job.primary_metric, job.metric, job.difference) == ("accuracy", 0.5, -0.25)
    assert job.duration_us == job.end_us - job.start_us > 0
    assert await jobs.events() == ["JOB_CREATED", "SCHEDULE", "CLAIM", "OFFER", "PUBLISH"]
    artifact = await db.read(records.artifact_named, ArtifactName("p", SHA))
    assert artifact is not None
    assert artifact.job_id == "a"
    await is_over(db, fence)


async def test_a_stale_worker_can_write_nothing(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    old = await run(db, jobs)
    await db.write(leases.fail_attempt, old, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    assert (await jobs.get()).state == "QUEUED"
    new = await run(db, jobs)
    assert new.token > old.token
    before = await jobs.get()
    for late in (
        db.write(beat, old, progress=b"x", lease_us=SECOND),
        db.write(leases.offer, old, SHA, actor="worker"),
        db.write(leases.fail_attempt, old, Failure(FailureReason.NAN_LOSS), actor="worker"),
        db.write(leases.stopped, old, actor="worker"),
        db.write(leases.claim, old, runner_id="r", node="n", lease_us=SECOND),
        db.write(leases.fenced, Fence(new.attempt, old.token)),
    ):
        with pytest.raises(StaleLease):
            await late
    assert (await jobs.get()).version == before.version


async def test_only_the_runner_that_holds_the_lease_can_claim_again(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    fence = await run(db, jobs)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=SECOND)
    with pytest.raises(StaleLease):
        await db.write(leases.claim, fence, runner_id="other", node="n", lease_us=SECOND)


async def test_what_the_executor_says_after_the_claim_changes_nothing(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    await run(db, jobs)
    attempt = (await jobs.live()).attempt
    await db.write(leases.submitted, attempt.uid)
    await db.write(leases.refused, attempt.uid, "no room")
    assert (await jobs.live()).attempt == attempt


async def test_who_has_not_claimed_can_write_nothing(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    fence = await start(db, jobs)
    for early in (
        db.write(beat, fence, progress=b"x", lease_us=SECOND),
        db.write(leases.commit_checkpoint, fence, step=1, manifest_sha256=SHA),
        db.write(leases.offer, fence, SHA, actor="worker"),
    ):
        with pytest.raises(StaleLease):
            await early


async def test_infrastructure_failures_are_retried_until_attempts_are_used_up(
    db: Database, jobs: Jobs, clock: TestClock
) -> None:
    await jobs.create(max_attempts=2)
    fence = await run(db, jobs)
    await db.write(beat, fence, progress=b"x", lease_us=SECOND)
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    job = await jobs.get()
    assert (job.state, job.state_reason, job.progress) == ("QUEUED", "WORKER_LOST", None)
    assert job.not_before_us > clock.now
    fence = await run(db, jobs)
    assert (await jobs.get()).start_us == job.start_us, "when it first ran"
    await db.write(
        leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST, "it is gone", lost=True), actor="watchdog"
    )
    job = await jobs.get()
    assert (job.state, job.failure_reason, job.failure_message) == ("FAILED", "WORKER_LOST", "it is gone")
    states = [row.state for row in await db.read(records.attempts_of, job.uid, 0, 10)]
    assert states == ["LOST", "LOST"]


async def test_a_trainer_that_a_signal_kills_at_the_same_step_again_and_again_fails_the_job(
    db: Database, jobs: Jobs
) -> None:
    uid = await jobs.create(max_attempts=9)
    smallest = job_pb2.CompressionSpec(model="m", task="sst2", training=job_pb2.Training(batch_size=1))
    cannot_be_cut = update(JOBS).where(JOBS.c.uid == uid).values(spec=smallest.SerializeToString())
    await db.write(lambda tx: tx.conn.execute(cannot_be_cut))

    async def killed(step: int, reason: FailureReason = FailureReason.TRAINER_KILLED) -> Any:
        kill = Kill(9, "pruning", step)
        fence = await run(db, jobs)
        await db.write(leases.fail_attempt, fence, Failure(reason, f"killed at {step}.", kill=kill), actor="worker")
        return await jobs.get()

    async def lost() -> None:
        await db.write(leases.fail_attempt, await run(db, jobs), Failure(FailureReason.WORKER_LOST), actor="watchdog")

    for step in (7, 5, 5):
        job = await killed(step)
        assert (job.state, job.state_reason) == ("QUEUED", "TRAINER_KILLED")
    await lost()
    job = await killed(5)
    assert (job.state, job.failure_reason) == ("FAILED", "TRAINER_KILLED")
    assert job.failure_message.startswith("killed at 5. 3 attempts ended so at this step;")
    [*_, last] = await db.read(records.attempts_of, job.uid, 0, 10)
    assert last.failure_message == "killed at 5."

    await db.write(lambda tx: lifecycle.retry(tx, lifecycle.lock_job_named(tx, JobName("p", "a")), actor="user"))
    for reason in (FailureReason.TRAINER_KILLED, FailureReason.OUT_OF_MEMORY):
        assert (await killed(5, reason)).state == "QUEUED", "the user's retry begins to count anew"
    assert (await killed(5, FailureReason.OUT_OF_MEMORY)).state == "FAILED"


async def test_each_retry_waits_twice_as_long_up_to_five_minutes(db: Database, jobs: Jobs) -> None:
    await jobs.create(max_attempts=9)
    waits = []
    for _ in range(8):
        fence = await run(db, jobs)
        await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
        job = await jobs.get()
        waits.append((job.not_before_us - job.update_us) / SECOND)
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300]


async def test_what_fails_with_its_result_offered_is_not_retried(db: Database, jobs: Jobs) -> None:
    await jobs.create(max_attempts=2)
    fence = await run(db, jobs)
    await db.write(leases.offer, fence, SHA, actor="worker")
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST), actor="worker")
    job = await jobs.get()
    assert (job.state, job.failure_reason, job.attempts_left) == ("FAILED", "WORKER_LOST", 1)


async def test_user_errors_are_not_retried(db: Database, jobs: Jobs) -> None:
    await jobs.create(max_attempts=5)
    fence = await run(db, jobs)
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.INVALID_MODEL, "no weights"), actor="worker")
    job = await jobs.get()
    assert (job.state, job.failure_reason) == ("FAILED", "INVALID_MODEL")
    await is_over(db, fence)


@pytest.mark.parametrize("reach", ["queued", "starting", "running", "finalizing"])
async def test_cancel_in_every_live_state(db: Database, jobs: Jobs, reach: str) -> None:
    await jobs.create()
    fence = None
    if reach == "starting":
        fence = await start(db, jobs)
    elif reach in ("running", "finalizing"):
        fence = await run(db, jobs)
        if reach == "finalizing":
            await db.write(leases.offer, fence, SHA, actor="worker")
    await jobs.cancel()
    await jobs.cancel()
    if fence is not None:
        assert (await jobs.get()).state == "CANCELLING"
        await db.write(leases.stopped, fence, actor="worker")
        await is_over(db, fence)
    assert (await jobs.get()).state == "CANCELLED"


async def test_a_whole_result_wins_over_a_cancel(db: Database, jobs: Jobs) -> None:
    uid = await jobs.create()
    fence = await run(db, jobs)
    await jobs.cancel()
    await db.write(leases.offer, fence, SHA, actor="watchdog")
    assert (await jobs.get()).state == "CANCELLING"
    await db.write(leases.publish, uid, (await jobs.live()).attempt.uid, MANIFEST, 1)
    assert (await jobs.get()).state == "SUCCEEDED"


async def test_a_failure_while_cancelling_is_a_cancellation(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    fence = await run(db, jobs)
    await jobs.cancel()
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.TRAINER_CRASHED), actor="worker")
    assert (await jobs.get()).state == "CANCELLED"


async def test_retry_begins_anew_and_goes_on_counting_attempts(db: Database, jobs: Jobs) -> None:
    await jobs.create(max_attempts=2)
    for reason in (FailureReason.WORKER_LOST, FailureReason.NAN_LOSS):
        fence = await run(db, jobs)
        await db.write(leases.fail_attempt, fence, Failure(reason), actor="worker")
    failed = await jobs.get()
    assert (failed.state, failed.attempts_left) == ("FAILED", 0)
    assert min(failed.not_before_us, failed.ran_us) > 0

    def work(tx: Tx) -> Any:
        return lifecycle.retry(tx, lifecycle.lock_job_named(tx, JobName("p", "a")), actor="user")

    job = await db.write(work)
    assert (job.state, job.failure_reason, job.end_us) == ("QUEUED", None, None)
    assert (job.attempts_left, job.not_before_us, job.ran_us) == (2, 0, 0)
    assert job.rank_us > failed.rank_us, "it waits behind those that came meanwhile"
    assert (await start(db, jobs)).attempt.number == 3
    with pytest.raises(IllegalTransition):
        await db.write(work)


async def test_only_finished_jobs_are_deleted_and_their_artifacts_stay(db: Database, jobs: Jobs) -> None:
    uid = await jobs.create()
    fence = await run(db, jobs)

    def remove(tx: Tx, etag: str = "") -> None:
        lifecycle.remove(tx, lifecycle.lock_job_named(tx, JobName("p", "a")), etag=etag)

    with pytest.raises(lifecycle.NotTerminal):
        await db.write(remove)
    await db.write(leases.offer, fence, SHA, actor="worker")
    attempt = (await jobs.live()).attempt
    await db.write(attempt_logs.append_log, attempt, 0, b"hello")
    await db.write(records.add_metrics, attempt, [("loss", 1, 0.5, 0)])
    await db.write(leases.publish, uid, attempt.uid, MANIFEST, 1)
    with pytest.raises(lifecycle.EtagMismatch):
        await db.write(remove, "1")
    await db.write(remove, str((await jobs.get()).version))
    assert await jobs.get() is None
    for row in (ATTEMPTS, EVENTS, LOGS, METRICS):
        left = await db.read(lambda conn, table=row: conn.execute(select(table)).all())
        assert left == []
    artifact = await db.read(records.artifact_named, ArtifactName("p", SHA))
    assert artifact is not None
    assert artifact.job_id is None


@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (1, None), (None, 1), (None, None)])
async def test_an_artifact_is_kept_for_as_long_as_one_of_its_jobs_asks_for(
    db: Database, jobs: Jobs, clock: TestClock, first: int | None, second: int | None
) -> None:
    for job_id, days in (("a", first), ("b", second)):
        policy = job_pb2.ExecutionPolicy()
        if days is not None:
            policy.retention.FromSeconds(days * 86_400)
        uid = await jobs.create(job_id, policy=policy)
        await db.write(leases.offer, await run(db, jobs, job_id), SHA, actor="worker")
        await db.write(leases.publish, uid, (await jobs.live(job_id)).attempt.uid, MANIFEST, 1)
    artifact = await db.read(records.artifact_named, ArtifactName("p", SHA))
    assert artifact is not None
    days = None if artifact.expire_us is None else (artifact.expire_us - clock.now) / (86_400 * SECOND)
    assert days == (None if first is None or second is None else pytest.approx(2, abs=1e-6))


async def test_the_schema_refuses_impossible_rows(db: Database, jobs: Jobs) -> None:
    uid = await jobs.create()
    fence = await start(db, jobs)
    live = await jobs.live()
    copy = {**live.attempt._asdict(), "uid": "another", "number": 2}
    with pytest.raises(IntegrityError):  # two live attempts of one job
        await db.write(lambda tx: tx.conn.execute(insert(ATTEMPTS).values(copy)))
    with pytest.raises(IntegrityError):  # a terminal job without an end
        await db.write(lambda tx: tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(state="FAILED")))
    with pytest.raises(IntegrityError):  # a live job with one
        await db.write(lambda tx: tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(end_us=1)))
    assert (await jobs.get()).state == "STARTING"
    assert fence.attempt.number == 1


async def test_one_failing_write_leaves_its_neighbours_alone(db: Database, jobs: Jobs) -> None:
    def fail(tx: Tx) -> None:
        tx.conn.execute(text("UPDATE jobs SET display_name = 'gone'"))
        raise ZeroDivisionError

    results = await asyncio.gather(*(jobs.create(f"job{i}") for i in range(20)), db.write(fail), return_exceptions=True)
    assert isinstance(results.pop(), ZeroDivisionError)
    for i, uid in enumerate(results):
        job = await jobs.get(f"job{i}")
        assert (job.uid, job.display_name) == (uid, "")


async def test_attempts_are_found_by_the_job_that_they_are_of(db: Database, jobs: Jobs) -> None:
    for job_id in ("a", "b"):
        await jobs.create(job_id)
        await start(db, jobs, job_id)
        for number in (1, None):
            found = await db.read(records.attempt_named, AttemptName("p", job_id, number))
            assert found == (await jobs.live(job_id)).attempt


async def test_logs_are_kept_by_offset(db: Database, jobs: Jobs) -> None:
    await jobs.create()
    await run(db, jobs)
    written = b""
    for offset, data in ((0, b"hello "), (0, b"hello "), (3, b"lo world"), (20, b"gap"), (11, b"\n")):
        attempt = (await jobs.live()).attempt
        following = await db.write(attempt_logs.append_log, attempt, offset, data)
        written = (written + data[len(written) - offset :]) if offset <= len(written) else written
        assert following == len(written)
    assert written == b"hello world"[:11] + b"\n"
    uid = (await jobs.live()).attempt.uid
    for offset in range(len(written) + 1):
        assert await db.read(attempt_logs.read_log, uid, offset, 100) == written[offset:]
    assert await db.read(attempt_logs.read_log, uid, 2, 4) == written[2:6]


async def test_metrics_ignore_what_they_know(db: Database, jobs: Jobs) -> None:
    uid = await jobs.create()
    await run(db, jobs)
    attempt = (await jobs.live()).attempt
    await db.write(records.add_metrics, attempt, [("loss", 1, 0.5, 0), ("loss", 2, 0.4, 0)])
    await db.write(records.add_metrics, attempt, [("loss", 2, 9.9, 0), ("loss", 3, 0.3, 0), ("f1", 2, 0.1, 0)])
    rows = await db.read(records.metrics_of, uid, 0, 100)
    assert [(row.metric, row.step, row.value) for row in rows] == [
        ("loss", 1, 0.5),
        ("loss", 2, 0.4),
        ("loss", 3, 0.3),
        ("f1", 2, 0.1),
    ]
