"""The control loops, one step at a time, against an executor and a clock that do as they are told."""

from __future__ import annotations

from pathlib import Path

from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock
from tests.unit.service.plane import KEY, LEASE, Plane, artifact, claim

from mvprune.v1 import job_pb2
from mvprune_service.db import attempt_logs, records
from mvprune_service.domain.placement import Reserved, resolve
from mvprune_service.executors.base import Capacity, Node, Observation, Phase
from mvprune_service.secret import attempt_secret
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import publish


async def test_jobs_start_in_order_and_only_into_capacity(plane: Plane, jobs: Jobs) -> None:
    await jobs.create("a", cpus=3.0)
    await jobs.create("b", cpus=2.0)
    await jobs.create("c", cpus=1.0)
    await plane.dispatch()
    assert [(await jobs.get(x)).state for x in "abc"] == ["STARTING", "QUEUED", "QUEUED"]
    assert (await jobs.get("b")).state_reason == "WAITING_FOR_CAPACITY"
    await jobs.cancel("a")
    await plane.watch_until_reported()
    assert (await jobs.get("a")).state == "CANCELLED"
    await plane.dispatch()
    assert [(await jobs.get(x)).state for x in "bc"] == ["STARTING", "STARTING"]


async def test_the_launch_carries_the_attempts_own_credential(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    await plane.dispatcher.step()
    (launch,) = plane.executor.launches.values()
    live = await jobs.live()
    assert live.attempt.state == "SUBMITTED"
    assert launch.env["MVPRUNE_ATTEMPT_SECRET"] == attempt_secret(
        KEY, "projects/p/jobs/a/attempts/1", live.attempt.fencing_token
    )
    assert launch.env["MVPRUNE_ATTEMPT_SECRET"] not in repr(launch)
    assert (launch.cpus, launch.gpus) == (4.0, 0.0)


def test_defaults_follow_the_cluster() -> None:
    cpus = Capacity((Node(16, 0, 1),))
    gpus = Capacity((Node(32, 4, 1), Node(32, 4, 1)))
    assert resolve(job_pb2.Resources(), cpus).gpus == 0
    assert resolve(job_pb2.Resources(), cpus).cpus == 8
    assert resolve(job_pb2.Resources(), gpus).gpus == 1
    assert resolve(job_pb2.Resources(gpus=0, cpus=0.5), gpus) == Reserved(0.5, 0, 0)
    assert resolve(job_pb2.Resources(gpus=4), gpus) == Reserved(16, 4, 0), "four CPUs beside each GPU"


def test_resources_are_those_of_each_worker() -> None:
    cpus, gpus = Capacity((Node(16, 0, 8),)), Capacity((Node(32, 4, 8), Node(32, 4, 8)))
    assert resolve(job_pb2.Resources(workers=2, cpus=1, gpus=0, memory_bytes=3), gpus) == Reserved(2, 0, 6)
    assert resolve(job_pb2.Resources(workers=2, gpus=2), gpus) == Reserved(16, 4, 0)
    assert resolve(job_pb2.Resources(workers=4), gpus) == Reserved(16, 4, 0), "a GPU each"
    assert resolve(job_pb2.Resources(workers=8), gpus).gpus == 0, "no node has a GPU for each"
    assert resolve(job_pb2.Resources(workers=2), cpus) == Reserved(16, 0, 0)


async def test_an_executor_that_is_away_delays_and_decides_nothing(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    plane.executor.away = True
    await plane.dispatch()
    told = await jobs.get()
    assert told.state_reason == "EXECUTOR_UNREACHABLE"
    await plane.dispatch()
    assert await jobs.get() == told, "each change wakes the loops"
    plane.executor.away = False
    await plane.dispatch()
    await claim(plane, jobs)
    plane.executor.away = True
    plane.clock.pass_seconds(3600)
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "RUNNING"
    plane.executor.away = False
    plane.executor.seen = {ref: Observation(Phase.GONE) for ref in plane.executor.launches}
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "QUEUED"


async def test_a_refused_launch_holds_up_no_other_and_is_tried_again(plane: Plane, jobs: Jobs) -> None:
    for job_id in "ab":
        await jobs.create(job_id, cpus=1.0, max_attempts=1)
    await plane.scheduler.step()
    refused, other = [(await jobs.live(job_id)).attempt.executor_ref for job_id in "ab"]
    plane.executor.refuses = {refused}
    await plane.dispatcher.step()
    assert list(plane.executor.launches) == [other]
    plane.executor.refuses = set()
    await plane.dispatcher.step()
    assert list(plane.executor.launches) == [other, refused]
    assert (await jobs.live("a")).attempt.failure_message is None


async def test_a_launch_that_stays_refused_fails_and_says_why(plane: Plane, jobs: Jobs) -> None:
    await jobs.create(max_attempts=1)
    await plane.scheduler.step()
    plane.executor.refuses = {(await jobs.live()).attempt.executor_ref}
    await plane.dispatcher.step()
    await plane.watchdog.step()
    assert (await jobs.get()).state == "STARTING"
    plane.clock.pass_seconds(61)
    await plane.watchdog.step()
    job = await jobs.get()
    told = (job.state, job.failure_reason, job.failure_message)
    assert told == ("FAILED", "START_TIMEOUT", "refused: Bearer [redacted]")


async def test_who_waits_for_room_with_the_executor_uses_up_no_attempt(plane: Plane, jobs: Jobs) -> None:
    await jobs.create(max_attempts=1)
    for number in (1, 2):
        plane.clock.pass_seconds(60)
        await plane.dispatch()
        attempt = (await jobs.live()).attempt
        assert attempt.number == number
        plane.executor.seen[attempt.executor_ref] = Observation(Phase.PENDING)
        plane.clock.pass_seconds(61)
        await plane.watchdog.step()
        job = await jobs.get()
        assert (job.state, job.state_reason, job.attempts_left) == ("QUEUED", "START_TIMEOUT", 1)
        assert plane.executor.stops[-1] == attempt.executor_ref


async def test_a_worker_that_does_not_call_is_shown_within_a_minute(plane: Plane, jobs: Jobs) -> None:
    why = "the server at there:1 cannot be reached, trying again: UNAVAILABLE: Bearer s3cr3t"
    await jobs.create(policy=job_pb2.ExecutionPolicy(start_timeout={"seconds": 90}))
    await plane.dispatch()
    ref = (await jobs.live()).attempt.executor_ref
    plane.executor.outputs[ref] = f"2026-01-02 03:04:05 supervisor: {why}\na warning of the trainer\n".encode()
    await plane.watchdog.step()
    plane.clock.pass_seconds(39)
    await plane.watchdog.step()
    assert (await jobs.events())[-1] == "SCHEDULE"
    plane.clock.pass_seconds(2)
    for _ in range(3):  # it is recorded once
        await plane.watchdog.step()
    assert (await jobs.events())[-2:] == ["SCHEDULE", "WORKER_SILENT"]
    job = await jobs.get()
    assert (job.state, job.state_reason) == ("STARTING", "WAITING_FOR_WORKER")
    words = f"the worker has run for 41 s and has not called the server; its last line: {why[:-6]}[redacted]"
    assert (await jobs.live()).attempt.failure_message == words
    assert f"projects/p/jobs/a/attempts/1: {words}" in plane.problems.texts()["workers"]

    plane.clock.pass_seconds(60)
    await plane.watchdog.step()
    job = await jobs.get()
    assert (job.state, job.state_reason, plane.executor.stops) == ("QUEUED", "START_TIMEOUT", [ref])
    event = (await plane.db.read(records.events_of, job.uid, 0, 100))[-1]
    assert event.details["message"] == words
    attempt = (await plane.db.read(records.attempts_of, job.uid, 0, 10))[0]
    assert b"a warning of the trainer" in await plane.db.read(attempt_logs.read_log, attempt.uid, 0, 1000)
    await plane.watchdog.step()
    assert "workers" not in plane.problems.texts()


async def test_a_worker_that_calls_late_is_no_problem_any_more(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    await plane.watchdog.step()
    plane.clock.pass_seconds(45)
    for _ in range(2):
        await plane.watchdog.step()
    assert "it has written nothing" in plane.problems.texts()["workers"]
    await claim(plane, jobs)
    await plane.watchdog.step()
    assert "workers" not in plane.problems.texts()
    live = await jobs.live()
    assert (live.job.state_reason, live.attempt.failure_message) == ("", None)


async def test_a_worker_that_ends_before_it_calls_leaves_its_last_line(plane: Plane, jobs: Jobs) -> None:
    await jobs.create(max_attempts=1)
    await plane.dispatch()
    ref = (await jobs.live()).attempt.executor_ref
    plane.executor.seen[ref] = Observation(Phase.EXITED, 2)
    plane.executor.outputs[ref] = b"mvprune_workers: MVPRUNE_STORE must be set\n"
    await plane.watch_until_reported()
    job = await jobs.get()
    words = "the worker disappeared (exit code 2: mvprune_workers: MVPRUNE_STORE must be set)"
    assert (job.state, job.failure_reason, job.failure_message) == ("FAILED", "WORKER_LOST", words)


async def test_an_expired_lease_alone_ends_nothing(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    plane.clock.pass_seconds(3600)
    await plane.watch_until_reported()  # the executor still says RUNNING
    assert (await jobs.get()).state == "RUNNING"


async def test_a_live_lease_is_believed(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    plane.executor.seen = {ref: Observation(Phase.EXITED, 0) for ref in plane.executor.launches}
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "RUNNING"


async def test_a_server_that_just_started_expires_nothing(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    plane.executor.seen = {ref: Observation(Phase.GONE) for ref in plane.executor.launches}
    plane.clock.pass_seconds(3600)
    plane.restart()
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "RUNNING"
    plane.clock.pass_seconds(LEASE)
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "QUEUED"


async def test_a_server_that_just_started_gives_no_start_up(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    plane.clock.pass_seconds(61)
    plane.restart()
    await plane.watchdog.step()
    assert (await jobs.get()).state == "STARTING", "it could not claim while no server was up"
    plane.clock.pass_seconds(LEASE)
    await plane.watchdog.step()
    assert (await jobs.get()).state_reason == "START_TIMEOUT"


async def test_a_worker_that_never_claims_is_given_up(plane: Plane, jobs: Jobs) -> None:
    await jobs.create(max_attempts=2)
    await plane.dispatch()
    plane.clock.pass_seconds(61)
    await plane.watchdog.step()
    job = await jobs.get()
    assert (job.state, job.state_reason) == ("QUEUED", "START_TIMEOUT")
    assert plane.executor.stops == list(plane.executor.launches)


async def test_a_worker_that_dies_before_its_claim_is_lost(plane: Plane, jobs: Jobs) -> None:
    await jobs.create(max_attempts=1)
    await plane.dispatch()
    plane.executor.seen = {ref: Observation(Phase.EXITED, 1) for ref in plane.executor.launches}
    await plane.watchdog.step()
    assert (await jobs.get()).state == "STARTING", "its own report may be on the way"
    await plane.watch_until_reported()
    job = await jobs.get()
    assert (job.state, job.failure_reason) == ("FAILED", "WORKER_LOST")
    assert "exit code 1" in job.failure_message


async def test_a_result_whose_report_was_lost_is_adopted(
    plane: Plane, jobs: Jobs, store: BlobStore, tmp_path: Path
) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    sha256 = publish(store, artifact(tmp_path / "out"), (await jobs.live()).attempt.uid)
    plane.clock.pass_seconds(LEASE + 1)
    await plane.watchdog.step()
    assert (await jobs.get()).state == "FINALIZING"
    await plane.finalizer.step()
    job = await jobs.get()
    assert (job.state, job.artifact_sha256) == ("SUCCEEDED", sha256)


async def test_a_result_in_time_outweighs_a_max_runtime_that_passed_while_no_server_was_up(
    plane: Plane, jobs: Jobs, store: BlobStore, tmp_path: Path
) -> None:
    policy = job_pb2.ExecutionPolicy()
    policy.max_runtime.seconds = 100
    await jobs.create(policy=policy)
    await plane.dispatch()
    await claim(plane, jobs)
    publish(store, artifact(tmp_path / "out"), (await jobs.live()).attempt.uid)
    plane.clock.pass_seconds(200)
    await plane.watchdog.step()
    assert (await jobs.get()).state == "FINALIZING"


async def test_cancel_reaches_a_worker_that_does_not_listen(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    await jobs.cancel(grace=10)
    await plane.watchdog.step()
    assert plane.executor.stops == []  # it is told by its heartbeat first
    plane.clock.pass_seconds(10 + LEASE + 1)
    await plane.watch_until_reported()
    assert len(plane.executor.stops) >= 1
    assert (await jobs.get()).state == "CANCELLED"


async def test_a_result_that_is_whole_outweighs_a_cancel_though_its_report_was_lost(
    plane: Plane, jobs: Jobs, store: BlobStore, tmp_path: Path
) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    publish(store, artifact(tmp_path / "out"), (await jobs.live()).attempt.uid)
    await jobs.cancel()
    plane.executor.seen = {ref: Observation(Phase.EXITED, 0) for ref in plane.executor.launches}
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "CANCELLING"
    await plane.finalizer.step()
    assert (await jobs.get()).state == "SUCCEEDED"


async def test_what_is_cancelled_before_its_launch_is_not_launched(plane: Plane, jobs: Jobs) -> None:
    await jobs.create()
    await plane.scheduler.step()
    await jobs.cancel()
    await plane.dispatcher.step()
    assert plane.executor.launches == {}


async def test_a_clock_that_is_set_back_hides_no_dead_worker(
    plane: Plane, jobs: Jobs, executor: ScriptedExecutor, clock: TestClock
) -> None:
    await jobs.create()
    await plane.dispatch()
    await claim(plane, jobs)
    live = await jobs.live()
    clock.pass_seconds(-3600)
    await plane.watch_until_reported()
    assert (await jobs.get()).state == "RUNNING", "its process is there"
    executor.seen[live.attempt.executor_ref] = Observation(Phase.GONE)
    await plane.watchdog.step()
    clock.pass_seconds(-3600)
    await plane.watch_until_reported()
    assert ((await jobs.get()).state, (await jobs.get()).state_reason) == ("QUEUED", "WORKER_LOST")


async def test_a_launch_has_the_resources_of_all_workers(plane: Plane, jobs: Jobs) -> None:
    await jobs.create(workers=2, cpus=1.5, gpus=0.0, memory_bytes=64 << 20)
    await plane.dispatch()
    (launch,) = plane.executor.launches.values()
    assert (launch.cpus, launch.gpus, launch.memory_bytes) == (3.0, 0.0, 128 << 20)
    assert (launch.env["MVPRUNE_CPUS"], launch.env["MVPRUNE_WORKERS"]) == ("3.0", "2")
