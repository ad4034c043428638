"""A round of a loop: what one attempt, or a part that is away, does to it."""

from __future__ import annotations

import traceback
from collections import Counter
from typing import Any

import pytest
from tests.unit.service.conftest import Jobs, ScriptedExecutor
from tests.unit.service.plane import LEASE, Plane, claim

from mvprune.v1 import job_pb2
from mvprune_service.control.loop import for_each
from mvprune_service.db import leases
from mvprune_service.db.tables.attempts import Live
from mvprune_service.executors.base import ExecutorUnavailable, Launch, Observation, Phase
from mvprune_service.stores.base import BlobStore, StoreUnavailable


@pytest.mark.parametrize("broken", [("a",), ("a", "b")])
async def test_an_attempt_that_makes_a_loop_fail_holds_up_no_other(
    plane: Plane, jobs: Jobs, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    uids = {job_id: await jobs.create(job_id, max_attempts=1, cpus=1) for job_id in ("a", "b", "c")}
    await plane.dispatch()
    refs = {job_id: (await jobs.live(job_id)).attempt.executor_ref for job_id in uids}
    for ref in refs.values():
        executor.seen[ref] = Observation(Phase.EXITED, 1)
    observe = executor.observe

    def strange(ref: str) -> Observation:
        if ref in {refs[job_id] for job_id in broken}:
            raise KeyError("status")
        return observe(ref)

    monkeypatch.setattr(executor, "observe", strange)
    for _ in range(2):
        with pytest.raises((KeyError, ExceptionGroup)) as caught:
            await plane.watchdog.step()
        plane.clock.pass_seconds(6)
    text = "".join(traceback.format_exception(caught.value))
    for job_id in uids:
        assert (f"This was about projects/p/jobs/{job_id}/attempts/1." in text) is (job_id in broken)
        assert (await jobs.get(job_id)).state == ("STARTING" if job_id in broken else "FAILED")


async def test_an_attempt_that_cannot_be_launched_holds_up_no_other_and_says_so(
    plane: Plane, jobs: Jobs, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in "abc":
        await jobs.create(job_id, max_attempts=1, cpus=1.0)
    await plane.scheduler.step()
    refs = {job_id: (await jobs.live(job_id)).attempt.executor_ref for job_id in "abc"}
    submit = executor.submit

    def strange(launch: Launch) -> None:
        if launch.ref == refs["b"]:
            raise KeyError("s3cr3t")
        submit(launch)

    monkeypatch.setattr(executor, "submit", strange)
    for _ in range(2):
        with pytest.raises(KeyError) as caught:
            await plane.dispatcher.step()
        assert caught.value.__notes__ == ["This was about projects/p/jobs/b/attempts/1."]
    assert set(executor.launches) == {refs["a"], refs["c"]}
    assert [(await jobs.live(job_id)).attempt.state for job_id in "abc"] == ["SUBMITTED", "CREATED", "SUBMITTED"]
    plane.clock.pass_seconds(61)
    await plane.watchdog.step()
    job = await jobs.get("b")
    told = (job.state, job.failure_reason, job.failure_message)
    assert told == ("FAILED", "START_TIMEOUT", "the server cannot launch it (KeyError): its log has more")


class Silent:
    """Stands in for something that is asked: it counts, and does not answer."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error

    def __call__(self, *_: Any) -> Observation:
        self.asked += 1
        if self._error is not None:
            raise self._error
        return Observation(Phase.UNKNOWN)


async def test_a_round_waits_once_for_an_executor_that_does_not_answer(
    plane: Plane, jobs: Jobs, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in ("starting", "cancelling", "lost", "also-lost"):
        await jobs.create(job_id, cpus=1.0)
    observe, stop, submit = Silent(), Silent(ExecutorUnavailable("away")), Silent(ExecutorUnavailable("away"))
    await plane.scheduler.step()
    with monkeypatch.context() as away:
        away.setattr(executor, "submit", submit)
        await plane.dispatcher.step()
        assert submit.asked == 1
    await plane.dispatcher.step()
    for job_id in ("lost", "also-lost"):
        await claim(plane, jobs, job_id)
    await jobs.cancel("cancelling")
    plane.clock.pass_seconds(LEASE + 1)
    monkeypatch.setattr(executor, "observe", observe)
    monkeypatch.setattr(executor, "stop", stop)
    for rounds in (1, 2):
        await plane.watchdog.step()
        assert observe.asked + stop.asked == rounds


async def test_a_round_waits_once_for_a_store_that_does_not_answer(
    plane: Plane, jobs: Jobs, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in "abc":
        await jobs.create(job_id, cpus=1.0)
    await plane.dispatch()
    fences = [await claim(plane, jobs, job_id) for job_id in "abc"]
    plane.clock.pass_seconds(LEASE + 1)
    get = Silent(StoreUnavailable("away"))
    monkeypatch.setattr(store, "get", get)
    await plane.watchdog.step()
    assert get.asked == 1
    for fence in fences:
        await plane.db.write(leases.offer, fence, "0" * 64, actor="worker")
    await plane.finalizer.step()
    assert get.asked == 2


async def test_one_attempt_that_ends_each_round_hides_no_other(plane: Plane, jobs: Jobs) -> None:
    for job_id in "abcd":
        await jobs.create(job_id, cpus=1.0)
    await plane.scheduler.step()
    live = [await jobs.live(job_id) for job_id in "abcd"]
    done: Counter[str] = Counter()

    async def work(one: Live) -> None:
        if one is live[0]:
            raise StoreUnavailable("away")
        done[one.job.job_id] += 1

    for _ in range(100):
        await for_each(live, work, (StoreUnavailable,))
    assert set(done) == set("bcd")
    assert sum(done.values()) < 250


# Who cannot be asked about, or waits for room, has failed at nothing.


@pytest.mark.parametrize("is_submitted", [True, False])
async def test_an_executor_that_is_away_uses_up_no_attempt(
    plane: Plane, jobs: Jobs, executor: ScriptedExecutor, is_submitted: bool
) -> None:
    await jobs.create(max_attempts=1)
    await plane.scheduler.step()
    executor.away = not is_submitted
    await plane.dispatcher.step()
    executor.away = True
    plane.clock.pass_seconds(61)
    await plane.watchdog.step()
    job = await jobs.get()
    assert (job.state, job.state_reason, job.attempts_left) == ("QUEUED", "START_TIMEOUT", 1)


async def test_a_cancelled_job_does_not_wait_for_room(plane: Plane, jobs: Jobs, executor: ScriptedExecutor) -> None:
    await jobs.create()
    await plane.dispatch()
    (ref,) = executor.launches

    def stop(ref: str) -> None:
        executor.stops.append(ref)  # as Ray does, which stops a job that waits only when it starts

    executor.stop = stop  # type: ignore[method-assign]
    executor.seen[ref] = Observation(Phase.PENDING)
    await jobs.cancel()
    await plane.watchdog.step()
    assert executor.stops == [ref]
    assert (await jobs.get()).state == "CANCELLED"


async def test_attempts_with_a_lease_are_looked_at_once_in_the_interval_of_heartbeats(
    plane: Plane, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = job_pb2.ExecutionPolicy()
    limited.max_runtime.seconds = 3
    for job_id, policy in (("lasting", None), ("limited", limited), ("starting", None)):
        await jobs.create(job_id, policy=policy, cpus=1)
    await plane.dispatch()
    for job_id in ("lasting", "limited"):
        await claim(plane, jobs, job_id)
    looked_at: list[str] = []
    watch = plane.watchdog._watch

    async def noted(live: Live) -> None:
        looked_at.append(live.job.job_id)
        await watch(live)

    monkeypatch.setattr(plane.watchdog, "_watch", noted)
    rounds = []
    for _ in range(3):
        await plane.watchdog.step()
        rounds.append(sorted(looked_at))
        looked_at.clear()
        plane.clock.pass_seconds(0.4)
    assert rounds == [["lasting", "limited", "starting"], ["starting"], ["starting"]]
    plane.clock.pass_seconds(4)
    await plane.watchdog.step()
    assert looked_at.count("limited") == 1
    assert (await jobs.get("limited")).failure_reason == "MAX_RUNTIME"
    looked_at.clear()
    plane.clock.pass_seconds(LEASE)
    await plane.watchdog.step()
    assert "lasting" in looked_at, "its lease is over"
    assert (await jobs.get("lasting")).state == "RUNNING", "its process is not"
