"""Who starts next, and who has waited or run too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import insert
from tests.unit.service.beating import beat, steady
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.db import janitor, leases, lifecycle, placement, quotas, records
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.server import PROJECTS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure
from mvprune_service.executors.base import Capacity, Node, Observation, Phase
from mvprune_service.ids import JobName
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.local import LocalStore

GPUS = Capacity((Node(16, 4, 1 << 40),))
NO_LIMITS = quotas.GpuLimits({}, None)


def policy(**options: Any) -> job_pb2.ExecutionPolicy:
    seconds = {name: options.pop(name) for name in ("max_runtime", "max_queue_time") if name in options}
    made = job_pb2.ExecutionPolicy(**options)
    for name, value in seconds.items():
        getattr(made, name).seconds = value
    return made


async def place(db: Database, room: Capacity, limits: quotas.GpuLimits = NO_LIMITS) -> list[str]:
    """Starts what there is room for; the ids of the jobs that were started."""
    before = {live.attempt.uid for live in await db.read(records.live_attempts)}
    started = await db.write(placement.place, room, limits, executor="x")
    fresh = [live for live in await db.read(records.live_attempts) if live.attempt.uid not in before]
    assert len(fresh) == started
    return sorted(live.job.job_id for live in fresh)


async def end(db: Database, jobs: Jobs, job_id: str) -> None:
    live = await jobs.live(job_id)
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.NAN_LOSS), actor="worker")


async def run(db: Database, jobs: Jobs, job_id: str = "a") -> Fence:
    """Starts one job and claims it."""
    job = await jobs.get(job_id)
    reserved = Reserved(1, 0, 0)
    assert await db.write(leases.schedule, job.uid, reserved, executor="x", start_timeout_us=60 * SECOND)
    live = await jobs.live(job_id)
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=15 * SECOND)
    return fence


async def test_a_point_of_priority_is_ten_minutes_of_waiting(db: Database, jobs: Jobs, clock: TestClock) -> None:
    await jobs.create("old", cpus=1.0)
    clock.pass_seconds(30 * 60)
    await jobs.create("level", policy=policy(priority=3), cpus=1.0)  # as old as the first, and a moment more
    await jobs.create("urgent", policy=policy(priority=4), cpus=1.0)
    await jobs.create("patient", policy=policy(priority=-1), cpus=1.0)
    await jobs.create("new", cpus=1.0)
    room = Capacity((Node(1, 0, 1 << 40),))
    order = []
    for _ in range(5):
        (started,) = await place(db, room)
        order.append(started)
        await end(db, jobs, started)
    assert order == ["urgent", "old", "level", "new", "patient"]


async def test_a_large_job_is_not_overtaken_and_one_that_fits_nowhere_holds_up_nobody(db: Database, jobs: Jobs) -> None:
    await jobs.create("first", gpus=3.0, cpus=1.0)
    await jobs.create("huge", gpus=8.0, cpus=1.0)
    await jobs.create("large", gpus=2.0, cpus=1.0)
    await jobs.create("small", gpus=1.0, cpus=1.0)
    assert await place(db, GPUS) == ["first"]
    assert (await jobs.get("huge")).state_reason == (await jobs.get("large")).state_reason == "WAITING_FOR_CAPACITY"
    assert await place(db, GPUS) == []
    await end(db, jobs, "first")
    assert await place(db, GPUS) == ["large", "small"]


@pytest.mark.parametrize("nodes", [(Node(8, 2, 1 << 40),), (Node(4, 1, 1 << 40), Node(4, 1, 1 << 40))])
async def test_a_share_of_a_gpu_is_of_one_gpu(db: Database, jobs: Jobs, nodes: tuple[Node, ...]) -> None:
    for job_id, gpus in (("a", 0.6), ("b", 0.6), ("c", 0.6), ("d", 0.4)):
        await jobs.create(job_id, gpus=gpus, cpus=1.0)
    assert await place(db, Capacity(nodes)) == ["a", "b"]
    assert await place(db, Capacity(nodes)) == []
    await end(db, jobs, "a")
    assert await place(db, Capacity(nodes)) == ["c", "d"]
    await jobs.create("whole", gpus=1.0, cpus=1.0)
    await end(db, jobs, "c")
    assert await place(db, Capacity(nodes)) == ["whole"]  # the share of "d" lies beside "b"


async def test_what_is_left_of_each_gpu_is_found(db: Database, jobs: Jobs) -> None:
    for job_id, gpus in (("a", 0.7), ("b", 0.8), ("c", 0.3), ("d", 0.2)):
        await jobs.create(job_id, gpus=gpus, cpus=1.0)
    assert await place(db, Capacity((Node(8, 2, 1 << 40),))) == ["a", "b", "c", "d"]


async def test_a_job_gets_all_that_it_asks_for_from_one_node(db: Database, jobs: Jobs) -> None:
    room = Capacity((Node(4, 1, 8 << 30), Node(4, 1, 8 << 30), Node(16, 0, 64 << 30)))
    await jobs.create("gpus-of-two", gpus=2.0, cpus=1.0)
    await jobs.create("gpu-here-memory-there", gpus=1.0, cpus=1.0, memory_bytes=16 << 30)
    await jobs.create("on-cpus", gpus=0.0, cpus=3.0)
    await jobs.create("wide", gpus=0.0, cpus=13.0)
    await jobs.create("left-open")
    await jobs.create("too-many-cpus", gpus=1.0, cpus=4.0)
    assert await place(db, room) == ["left-open", "on-cpus", "too-many-cpus", "wide"]
    assert (await jobs.live("left-open")).attempt.cpus == 4.0
    assert (await jobs.get("gpus-of-two")).state_reason == "WAITING_FOR_CAPACITY"
    await jobs.create("none-left", gpus=0.0, cpus=1.0)
    assert await place(db, room) == []


async def test_what_runs_on_a_lost_node_takes_room_until_it_ends(db: Database, jobs: Jobs) -> None:
    for job_id in ("a", "b"):
        await jobs.create(job_id, gpus=0.0, cpus=3.0)
    assert await place(db, Capacity((Node(4, 0, 1), Node(4, 0, 1)))) == ["a", "b"]
    await jobs.create("c", gpus=0.0, cpus=1.0)
    assert await place(db, Capacity((Node(4, 0, 1),))) == []
    await end(db, jobs, "b")
    assert await place(db, Capacity((Node(4, 0, 1),))) == ["c"]


async def test_without_nodes_nobody_starts(db: Database, jobs: Jobs) -> None:
    await jobs.create("a")
    assert await place(db, Capacity(())) == []
    assert (await jobs.get("a")).state_reason == "WAITING_FOR_CAPACITY"


async def test_a_quota_holds_up_its_own_project_alone(db: Database, jobs: Jobs) -> None:
    for job_id in ("a", "b", "c"):
        await jobs.create(job_id, gpus=1.0, cpus=1.0)
    await jobs.create("on-cpus", gpus=0.0, cpus=1.0)

    def elsewhere(tx: Tx) -> None:
        wanted = job_pb2.ExecutionPolicy(max_attempts=1, resources=job_pb2.Resources(gpus=1.0, cpus=1.0))
        lifecycle.create(tx, lifecycle.NewJob("q", "d", job_pb2.CompressionSpec(), wanted, "me"), actor="me")
        tx.conn.execute(insert(PROJECTS).values(project="p", max_running_gpus=2.0))

    await db.write(elsewhere)
    limits = await db.read(quotas.gpu_limits, 1.0)
    assert (limits.of("p"), limits.of("q")) == (2.0, 1.0)
    assert await place(db, GPUS, limits) == ["a", "b", "d"]
    assert (await jobs.get("c")).state_reason == "WAITING_FOR_QUOTA"
    await end(db, jobs, "a")
    assert await place(db, GPUS, limits) == ["c", "on-cpus"]
    await jobs.create("on-cpus-too", gpus=0.0, cpus=1.0)
    assert await place(db, GPUS, quotas.GpuLimits({"p": 1.0}, None)) == ["on-cpus-too"]  # though it has more than that


async def test_a_long_queue_is_read_in_pages(db: Database, jobs: Jobs) -> None:
    def many(tx: Tx) -> None:
        wanted = job_pb2.ExecutionPolicy(max_attempts=1, resources=job_pb2.Resources(gpus=64.0, cpus=1.0))
        for number in range(250):
            new = lifecycle.NewJob("p", f"huge{number}", job_pb2.CompressionSpec(), wanted, "me")
            lifecycle.create(tx, new, actor="me")

    await db.write(many)
    await jobs.create("last", gpus=1.0, cpus=1.0)
    assert await place(db, GPUS) == ["last"]


async def test_two_replicas_do_not_give_the_same_room_away(db: Database, jobs: Jobs) -> None:
    for number in range(12):
        await jobs.create(f"j{number}", gpus=1.0, cpus=1.0)
    started = await asyncio.gather(*(db.write(placement.place, GPUS, NO_LIMITS, executor="x") for _ in range(6)))
    assert sum(started) == 4
    assert len(await db.read(records.live_attempts)) == 4


async def test_who_waits_too_long_fails(db: Database, jobs: Jobs, clock: TestClock, executor: ScriptedExecutor) -> None:
    scheduler = Scheduler(db, executor, clock=clock)
    await jobs.create("a", policy=policy(max_queue_time=60), cpus=4.0)
    await jobs.create("b", policy=policy(max_queue_time=60), cpus=4.0)
    await scheduler.step()
    assert [(await jobs.get(job_id)).state for job_id in "ab"] == ["STARTING", "QUEUED"]
    clock.pass_seconds(61)
    await scheduler.step()
    job = await jobs.get("b")
    assert (job.state, job.failure_reason, job.queue_deadline_us) == ("FAILED", "MAX_QUEUE_TIME", None)
    assert (await jobs.get("a")).state == "STARTING"  # its wait was over in time

    # back in the queue, it may wait as long again
    live = await jobs.live("a")
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    assert (await jobs.get("a")).queue_deadline_us == (await jobs.get("a")).update_us + 60 * SECOND


async def test_who_waited_while_no_server_was_up_gets_a_chance(
    db: Database, jobs: Jobs, clock: TestClock, executor: ScriptedExecutor
) -> None:
    await jobs.create("a", policy=policy(max_queue_time=60))
    clock.pass_seconds(3600)
    await Scheduler(db, executor, clock=clock).step()
    assert (await jobs.get("a")).state == "STARTING"


async def test_who_runs_too_long_fails_all_attempts_counted(
    db: Database, jobs: Jobs, clock: TestClock, executor: ScriptedExecutor, tmp_path: Any
) -> None:
    watchdog = Watchdog(db, executor, LocalStore(tmp_path), pace=steady(db), problems=Problems(), clock=clock)
    await jobs.create("a", max_attempts=3, policy=policy(max_runtime=100))
    first = await run(db, jobs)
    clock.pass_seconds(60)
    await db.write(leases.fail_attempt, first, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    assert (await jobs.get()).ran_us == pytest.approx(60 * SECOND, abs=1000)
    clock.pass_seconds(1000)  # in the queue: this does not count
    second = await run(db, jobs)
    running = (await jobs.live()).attempt.executor_ref
    clock.pass_seconds(30)
    await db.write(beat, second, progress=None, lease_us=60 * SECOND)
    await watchdog.step()
    assert (await jobs.get()).state == "RUNNING"
    clock.pass_seconds(11)
    await watchdog.step()
    job = await jobs.get()
    assert (job.state, job.failure_reason) == ("FAILED", "MAX_RUNTIME")
    assert executor.stops == [running]

    def retry(tx: Tx) -> Any:
        return lifecycle.retry(tx, lifecycle.lock_job_named(tx, JobName("p", "a")), actor="me")

    assert (await db.write(retry)).ran_us == 0


async def test_out_of_memory_is_tried_again_only_with_smaller_passes(db: Database, jobs: Jobs) -> None:
    def small(tx: Tx) -> None:
        spec = job_pb2.CompressionSpec(training=job_pb2.Training(batch_size=8, accumulation_steps=2))
        wanted = job_pb2.ExecutionPolicy(max_attempts=9)
        lifecycle.create(tx, lifecycle.NewJob("p", "b", spec, wanted, "me"), actor="me")

    await db.write(small)
    factors = []
    while (await jobs.get("b")).state != "FAILED":
        factors.append((await jobs.get("b")).accumulation_factor)
        await db.write(
            leases.fail_attempt, await run(db, jobs, "b"), Failure(FailureReason.OUT_OF_MEMORY), actor="worker"
        )
    assert factors == [1, 2, 4]  # 8 examples, in 2, 4 and 8 passes


async def test_checkpoints_are_those_of_the_live_attempt_and_outlive_it(db: Database, jobs: Jobs) -> None:
    uid = await jobs.create("a", max_attempts=3)
    first = await run(db, jobs)
    for step in (10, 20, 30, 30):
        await db.write(leases.commit_checkpoint, first, step=step, manifest_sha256=f"{step:064}")
    await db.write(leases.fail_attempt, first, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    second = await run(db, jobs)
    with pytest.raises(lifecycle.StaleLease):
        await db.write(leases.commit_checkpoint, first, step=40, manifest_sha256="0" * 64)
    found = await db.read(leases.checkpoints_of, uid)
    assert [(row.step, row.manifest_sha256) for row in found] == [(30, f"{30:064}"), (20, f"{20:064}")]
    await db.write(leases.fail_attempt, second, Failure(FailureReason.NAN_LOSS), actor="worker")

    def retry(tx: Tx, from_scratch: bool) -> Any:
        job = lifecycle.lock_job_named(tx, JobName("p", "a"))
        return lifecycle.retry(tx, job, actor="me", from_scratch=from_scratch)

    await db.write(retry, False)
    assert len(await db.read(leases.checkpoints_of, uid)) == 2
    await db.write(leases.fail_attempt, await run(db, jobs), Failure(FailureReason.NAN_LOSS), actor="worker")
    await db.write(retry, True)
    assert await db.read(leases.checkpoints_of, uid) == []


async def test_the_newest_checkpoint_is_kept_when_the_clock_is_set_back(
    db: Database, jobs: Jobs, clock: TestClock
) -> None:
    """Or when another server, whose clock is behind, records it."""
    uid = await jobs.create("a", max_attempts=3)
    first = await run(db, jobs)
    for step in (10, 20, 30):
        await db.write(leases.commit_checkpoint, first, step=step, manifest_sha256=f"{step:064}")
        clock.pass_seconds(-70)
    assert [row.step for row in await db.read(leases.checkpoints_of, uid)] == [30, 20]
    dropped = await db.write(janitor.drop_checkpoints, 0, 100)
    assert [checkpoint.step for checkpoint in dropped] == [10]
    await db.write(leases.fail_attempt, first, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    second = await run(db, jobs)  # it could not read these, and began again
    await db.write(leases.commit_checkpoint, second, step=5, manifest_sha256=f"{5:064}")
    assert [row.step for row in await db.read(leases.checkpoints_of, uid)] == [5, 30]


AUTOSCALED = Capacity((Node(2, 0, 1 << 40), Node(8, 0, 1 << 40, absent="large")))


async def test_a_job_waits_for_a_node_that_is_added(
    db: Database, jobs: Jobs, clock: TestClock, executor: ScriptedExecutor, store: BlobStore
) -> None:
    executor.room = AUTOSCALED
    await jobs.create("small", cpus=2.0)
    await jobs.create("large", cpus=8.0)
    scheduler = Scheduler(db, executor, node_start_seconds=600, clock=clock)
    watchdog = Watchdog(db, executor, store, pace=steady(db), problems=Problems(), clock=clock)
    await scheduler.step()
    small, large = await jobs.live("small"), await jobs.live("large")
    assert (small.job.state_reason, small.attempt.node) == ("", "")
    assert (large.job.state, large.job.state_reason, large.attempt.node) == ("STARTING", "WAITING_FOR_NODE", "large")
    assert large.attempt.start_deadline_us - small.attempt.start_deadline_us == 600 * SECOND

    for live in (small, large):
        await db.write(leases.submitted, live.attempt.uid)
        executor.seen[live.attempt.executor_ref] = Observation(Phase.PENDING)
    clock.pass_seconds(61)
    await watchdog.step()
    assert (await jobs.get("small")).state == "QUEUED"
    assert (await jobs.get("large")).state == "STARTING"
    clock.pass_seconds(600)
    await watchdog.step()
    waiting = await jobs.get("large")
    assert (waiting.state, waiting.state_reason, waiting.attempts_left) == ("QUEUED", "START_TIMEOUT", 2)

    clock.pass_seconds(30)
    await scheduler.step()  # the type is left out
    assert (await jobs.get("large")).state_reason == "WAITING_FOR_CAPACITY"
    clock.pass_seconds(600)
    await scheduler.step()
    live = await jobs.live("large")
    assert live.job.state_reason == "WAITING_FOR_NODE"
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="10.0.0.9", lease_us=15 * SECOND)
    live = await jobs.live("large")
    assert (live.job.state, live.job.state_reason, live.attempt.node) == ("RUNNING", "", "10.0.0.9")
