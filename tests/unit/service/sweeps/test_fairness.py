"""Sweeps beside single jobs: who starts when."""

from __future__ import annotations

import pytest
from tests.unit.service.conftest import ScriptedExecutor, TestClock

from mvprune.v1 import job_pb2
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.db import leases, lifecycle
from mvprune_service.db.engine.database import Database
from mvprune_service.db.leases import Fence
from mvprune_service.domain.machine import JobState
from mvprune_service.executors.base import Capacity, Node
from mvprune_service.ids import AttemptName

from .gym import BASE, Gym

SLOTS = 2


@pytest.mark.parametrize("parallel", [SLOTS, 12], ids=["as many jobs as slots", "all jobs at once"])
async def test_a_single_job_waits_for_no_more_than_one_run_of_a_child(
    db: Database, executor: ScriptedExecutor, clock: TestClock, parallel: int
) -> None:
    executor.room = Capacity((Node(SLOTS, 0, 8 << 30),))
    gym, scheduler = Gym(db, executor, clock=clock), Scheduler(db, executor, clock=clock)
    policy = {"resources": {"cpus": 1}}
    axes = [{"parameter": "seed", "values": list(range(12))}]
    base = BASE | {"teacher": {"none": True}, "target_density": 0.1}
    await gym.create(base=base, axes=axes, job_policy=policy, policy={"parallel": parallel, "own_baselines": True})
    started = list[str]()

    async def play() -> None:
        """One job ends, and another one starts in its place."""
        await gym.controller.step()
        await scheduler.step()
        live = [job for job in await gym.jobs() if job.state is JobState.STARTING]
        started.extend(sorted(job.job_id for job in live if job.job_id not in started))
        done = min(live, key=lambda job: started.index(job.job_id))
        fence = Fence(AttemptName("p", done.job_id, done.attempt), done.fencing_token)
        await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=10**9)
        await gym.finish(done.job_id, fence)

    for number in range(8):
        if number == 3:
            for name in ("mine", "yours"):
                spec = job_pb2.CompressionSpec(model="m", task="sst2", target_density=0.5, movement={})
                own = job_pb2.ExecutionPolicy(max_attempts=1, start_timeout={"seconds": 60}, resources={"cpus": 1})
                new = lifecycle.NewJob("p", name, spec, own, creator="user")
                await db.write(lifecycle.create, new, actor="user")
            submitted = len(started)
        await play()
    later = started[submitted:]
    for name in ("mine", "yours"):
        before = [job for job in later[: later.index(name)] if job.startswith("s-")]
        assert len(before) <= 1, f"children that started before {name}: {before}"
    assert len(set(later)) > 3, "the sweep goes on"
