"""A sweep with early stops: a run that cannot win any more is cancelled, and is not run again."""

from __future__ import annotations

from collections.abc import Mapping

from tests.unit.service.conftest import ScriptedExecutor

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.db import lifecycle, records
from mvprune_service.db.engine.database import Database, Tx

from .gym import BASE, NAME, Gym

STEPS = 100
AXES = [{"parameter": "density", "values": [0.1]}, {"parameter": "seed", "values": [0, 1, 2]}]
TRAINED = BASE | {
    "training": {"maxSteps": STEPS, "evaluateEvery": 10},
    "teacher": {"none": True},
    "baseline": {"none": True},
}


async def evaluated(gym: Gym, job_id: str, metrics: Mapping[int, float]) -> None:
    """A running job reports the accuracy of its evaluations, by step."""
    uid = (await gym.job(job_id)).uid

    def work(tx: Tx) -> None:
        job = lifecycle.lock_job(tx, uid)
        assert job is not None
        attempt = lifecycle.current_attempt(tx, job)
        assert attempt is not None
        records.add_metrics(tx, attempt, [("pruning/accuracy", step, value, tx.now) for step, value in metrics.items()])
        progress = job_pb2.Progress(phase="pruning", step=max(metrics), total_steps=STEPS)
        lifecycle.touch(tx, job, progress=lifecycle.canonical(progress))

    await gym.db.write(work)


async def test_a_run_that_cannot_win_is_cancelled_and_not_run_again(db: Database, executor: ScriptedExecutor) -> None:
    gym = Gym(db, executor, lambda spec: 0.9)
    await gym.create(base=TRAINED, axes=AXES, policy={"parallel": 3, "earlyStop": True})
    await gym.controller.step()
    for job_id in ("s-0001", "s-0002"):
        fence = await gym.start(job_id)
        await evaluated(gym, job_id, {60: 0.88, 80: 0.89, STEPS: 0.9})
        await gym.finish(job_id, fence)
    fence = await gym.start("s-0003")
    await evaluated(gym, "s-0003", {50: 0.2, 60: 0.88})  # at step 60 it is as good as the others were
    await gym.controller.step()
    await gym.controller.step()
    assert await gym.states() == ["SUCCEEDED", "SUCCEEDED", "RUNNING"]
    assert (await gym.job("s-0003")).state.value == "RUNNING"
    await evaluated(gym, "s-0003", {80: 0.7})
    await gym.controller.step()
    assert (await gym.job("s-0003")).state.value == "CANCELLING"
    await gym.stopped(fence)
    await gym.controller.step()
    point = (await gym.points())[2]
    assert (point.state, point.state_reason) == (point.SKIPPED, "STOPPED_EARLY")
    assert await gym.state() == "SUCCEEDED"
    again = await gym.servicer.RetrySweep(sweep_pb2.RetrySweepRequest(name=NAME), None)
    assert again.state == again.SUCCEEDED, "what was stopped early is not missing"


async def test_an_early_stop_needs_evaluations_and_no_search(db: Database, executor: ScriptedExecutor) -> None:
    gym = Gym(db, executor)
    said = await gym.refused(axes=AXES, policy={"earlyStop": True})
    assert "unset without evaluate_every" in said["sweep.policy.early_stop"]
    gates = [{"metric": "delta/accuracy", "min": -0.01}]
    said = await gym.refused(base=TRAINED, search={}, gates=gates, policy={"earlyStop": True})
    assert "unset with the strategy search" in said["sweep.policy.early_stop"]
