"""Heartbeats of several workers in one transaction."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.service.beating import beat
from tests.unit.service.conftest import Jobs, TestClock

from mvprune_service.api.beats import Beats
from mvprune_service.clock import SECOND
from mvprune_service.control.pace import Pace
from mvprune_service.db import leases
from mvprune_service.db.engine.database import Database
from mvprune_service.db.heartbeats import Beat, Renewed, heartbeats
from mvprune_service.db.leases import Fence
from mvprune_service.domain.leases import StaleLease
from mvprune_service.domain.placement import Reserved
from mvprune_service.ids import AttemptName

LEASE_US = 15 * SECOND


async def running(db: Database, jobs: Jobs, job_id: str) -> Fence:
    uid = await jobs.create(job_id)
    assert await db.write(leases.schedule, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=60 * SECOND)
    live = await jobs.live(job_id)
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=LEASE_US)
    return fence


async def test_each_heartbeat_gets_its_own_answer(db: Database, jobs: Jobs, clock: TestClock) -> None:
    good, stale, cancelled, offered = [await running(db, jobs, job_id) for job_id in "abcd"]
    await jobs.cancel("c", grace=7)
    await db.write(leases.offer, offered, "ab" * 32, actor="worker")
    unknown = Fence(AttemptName("p", "none", 1), 1)
    before = {job_id: await jobs.get(job_id) for job_id in "abcd"}
    leased = (await jobs.live("d")).attempt.lease_expire_us
    clock.pass_seconds(10)
    answers = await db.write(
        heartbeats,
        [
            Beat(good, b"old"),
            Beat(Fence(stale.attempt, stale.token - 1), b"x"),
            Beat(cancelled, None),
            Beat(unknown, b"x"),
            Beat(offered, b"uploaded"),
            Beat(good, b"new"),
        ],
        lease_us=LEASE_US,
    )
    assert [type(answer) for answer in answers] == [Renewed, StaleLease, Renewed, StaleLease, Renewed, Renewed]
    assert answers[2] == Renewed(before["c"].state, 7 * SECOND)
    after = {job_id: await jobs.get(job_id) for job_id in "abcd"}
    assert (after["a"].progress, after["d"].progress) == (b"new", b"uploaded")
    assert [after[job_id].version - before[job_id].version for job_id in "abcd"] == [1, 0, 0, 1]
    expire = {job_id: (await jobs.live(job_id)).attempt.lease_expire_us for job_id in "abcd"}
    assert expire["a"] == expire["c"] == after["a"].update_us + LEASE_US
    assert expire["b"] < expire["a"]
    assert expire["d"] == leased is None, "a result needs no lease"


async def test_the_same_progress_changes_no_job(db: Database, jobs: Jobs) -> None:
    fence = await running(db, jobs, "a")
    await db.write(beat, fence, progress=b"x", lease_us=LEASE_US)
    version = (await jobs.get("a")).version
    await db.write(beat, fence, progress=b"x", lease_us=LEASE_US)
    assert (await jobs.get("a")).version == version


async def test_many_heartbeats_share_transactions(db: Database, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    fences = [await running(db, jobs, f"j{number}") for number in range(12)]
    beats, sizes = Beats(db, Pace(db, heartbeat_seconds=1, lease_seconds=15)), []
    real = heartbeats

    def counted(tx: object, batch: list[Beat], **options: int) -> object:
        sizes.append(len(batch))
        return real(tx, batch, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("mvprune_service.api.beats.heartbeats", counted)
    stale = Fence(fences[0].attempt, fences[0].token + 1)
    answers = await asyncio.gather(
        *(beats.write(Beat(fence, b"x")) for fence in (*fences, stale)), return_exceptions=True
    )
    assert [getattr(answer, "state", None) for answer in answers[:-1]] == ["RUNNING"] * 12
    assert isinstance(answers[-1], StaleLease)
    assert sum(sizes) == 13
    assert len(sizes) <= 2
    assert (await beats.write(Beat(fences[0], b"y"))).state == "RUNNING"


async def test_the_pace_follows_the_workers(db: Database, jobs: Jobs) -> None:
    pace = Pace(db, heartbeat_seconds=0.01, lease_seconds=2)
    for job_id in "abc":
        await running(db, jobs, job_id)
    assert (pace.interval_seconds, pace.lease_seconds, pace.is_slowed) == (0.01, 2, False)
    await pace.step()
    assert (pace.interval_seconds, pace.lease_seconds, pace.is_slowed) == (0.03, 2, True)
