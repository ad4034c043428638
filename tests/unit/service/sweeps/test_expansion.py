"""What a sweep does by itself: failures, budgets, a full queue, reuse, names that are taken, sweeps side by side."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import server_path
from tests.unit.service.conftest import ScriptedExecutor, TestClock

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.expansion import expand
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.ids import JobName

from .gym import BASE, NAME, Gym

# On PostgreSQL, test_sweep_model.py and the other files make all statements that are made here.
pytestmark = pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)

AXES = [{"parameter": "density", "values": [0.1, 0.2, 0.3, 0.4]}]
ALONE = {"base": BASE | {"teacher": {"none": True}, "baseline": {"none": True}}, "axes": AXES}  # no baseline


@pytest.fixture
def gym(db: Database, executor: ScriptedExecutor, clock: TestClock) -> Gym:
    return Gym(db, executor, clock=clock)


async def job_of_a_user(gym: Gym, job_id: str, **spec: Any) -> None:
    values = {"model": "bert-base-uncased", "task": "sst2", "target_density": 0.5, "movement": {}}
    new = lifecycle.NewJob(
        "p", job_id, job_pb2.CompressionSpec(**(values | spec)), job_pb2.ExecutionPolicy(max_attempts=1), creator="user"
    )
    await gym.db.write(lambda tx: lifecycle.create(tx, new, actor="user"))


async def test_too_many_failures_let_the_live_ones_run(gym: Gym) -> None:
    await gym.create(**ALONE, policy={"parallel": 2, "max_failed": 0})
    await gym.controller.step()
    await gym.fail("s-0001")
    await gym.controller.step()
    assert await gym.states() == ["FAILED", "QUEUED", "SKIPPED", "SKIPPED"]
    assert (await gym.state(), (await gym.get()).state_reason) == ("ACTIVE", "TOO_MANY_FAILURES")
    await gym.succeed("s-0002")
    await gym.controller.step()
    done = await gym.get()
    assert (done.state, done.state_reason) == (done.FAILED, "TOO_MANY_FAILURES")
    assert done.recommendation.point == 2


async def test_too_many_failures_stop_the_live_ones_and_their_baseline(gym: Gym) -> None:
    axes = [*AXES[:1], {"parameter": "seed", "values": [0, 1]}]
    await gym.create(axes=axes, policy={"parallel": 4, "max_failed": 0, "on_failure": "STOP"})
    await gym.controller.step()
    first, second = [job.job_id for job in await gym.queued()]
    fence = await gym.start(second)
    await gym.fail(first)
    await gym.resolve()
    await gym.controller.step()
    assert sorted(await gym.states()) == ["CANCELLED"] * 2 + ["FAILED"] * 2 + ["SKIPPED"] * 4
    assert (await gym.job(second)).state == "CANCELLING"
    await gym.controller.step()
    assert await gym.state() == "ACTIVE", "what it created has not ended"
    await gym.stopped(fence)
    await gym.controller.step()
    done = await gym.get()
    assert (done.state, done.state_reason) == (done.FAILED, "TOO_MANY_FAILURES")


async def test_the_budget_in_hours_ends_it(gym: Gym, clock: TestClock) -> None:
    await gym.create(**ALONE, policy={"parallel": 1, "max_runtime": "3600s"})
    await gym.controller.step()
    clock.pass_seconds(3599)
    await gym.succeed("s-0001")
    await gym.controller.step()
    clock.pass_seconds(2)
    await gym.controller.step()
    assert await gym.states() == ["SUCCEEDED", "QUEUED", "SKIPPED", "SKIPPED"]
    assert {point.state_reason for point in (await gym.points())[2:]} == {"BUDGET_USED"}
    await gym.succeed("s-0002")
    await gym.controller.step()
    done = await gym.get()
    assert (done.state, done.state_reason) == (done.SUCCEEDED, "BUDGET_USED")


async def test_the_budget_in_gpu_hours_counts_all_attempts(gym: Gym, clock: TestClock) -> None:
    await gym.create(axes=AXES, policy={"parallel": 1, "max_gpu_hours": 1.0})
    await gym.controller.step()
    gym.gpus = 2.0
    (teacher,) = await gym.queued()
    fence = await gym.start(teacher.job_id)
    clock.pass_seconds(1000)
    await gym.finish(teacher.job_id, fence)
    await gym.resolve()
    fence = await gym.start("s-0001")
    clock.pass_seconds(790)
    await gym.finish("s-0001", fence)
    await gym.controller.step()
    assert (await gym.states())[1] == "QUEUED", "2 GPUs in 1,790 s are less than an hour"
    await gym.start("s-0002")
    clock.pass_seconds(11)
    await gym.controller.step()
    assert await gym.states() == ["SUCCEEDED", "RUNNING", "SKIPPED", "SKIPPED"]
    cost = (await gym.get()).cost
    assert cost.gpu_hours == pytest.approx(2 * 1801 / 3600, rel=0.01)
    assert cost.baseline_runtime.ToSeconds() == 1000


async def test_a_full_queue_is_waited_for(db: Database, executor: ScriptedExecutor) -> None:
    gym = Gym(db, executor, queue=3)
    await job_of_a_user(gym, "other")
    await gym.create(axes=AXES)
    await gym.controller.step()
    sweep = await gym.get()
    assert (sweep.state, sweep.state_reason) == (sweep.ACTIVE, "WAITING_FOR_QUOTA")
    assert sweep.counts.queued == 1, "a student and its baseline"
    await gym.start("other")
    ran = await gym.run()
    assert [job for job in ran if job.startswith("s-")] == ["s-0001", "s-0002", "s-0003", "s-0004"]
    assert not (await gym.get()).state_reason


async def test_a_user_has_the_id_of_a_point_already(gym: Gym) -> None:
    await job_of_a_user(gym, "s-0003")
    await gym.start("s-0003")
    await gym.create(**ALONE)
    ran = await gym.run()
    own = ran[2]
    assert [*ran[:2], ran[3]] == ["s-0001", "s-0002", "s-0004"]
    assert own.startswith("s-0003-")
    points = await gym.points()
    assert points[2].job.endswith(f"/{own}")
    assert (await gym.job("s-0003")).state == "RUNNING", "it is not changed"


@pytest.mark.slow
async def test_a_teacher_that_failed_holds_up_no_other_sweep(gym: Gym) -> None:
    await job_of_a_user(gym, "teacher", target_density=1.0)
    await gym.create(base=BASE | {"teacher": {"job": "teacher"}}, axes=AXES)
    await gym.fail("teacher")
    await gym.create(sweep_id="other", **ALONE)
    await gym.controller.step()
    assert (await gym.job("other-0001")).state == "QUEUED"
    assert await gym.states() == ["SKIPPED"] * 4
    await gym.controller.step()
    assert await gym.state() == "FAILED"
    assert {point.state_reason for point in await gym.points()} == {"TEACHER_FAILED"}


async def test_points_are_pinned_to_the_artifacts_of_their_masks(gym: Gym, db: Database) -> None:
    for job_id in ("a", "b"):
        await job_of_a_user(gym, job_id, seed=ord(job_id))
        await gym.succeed(job_id)
    points = [{"mask_from": "job:a", "density": 0.1}, {"mask_from": "job:b", "density": 0.2, "rewind": 0.1}]
    await gym.create(**ALONE | {"axes": []}, points=[*points, {"density": 0.3}], policy={"parallel": 1})
    await gym.controller.step()
    mask = (await spec_of(gym, "s-0001")).locked_mask.mask_from
    assert mask.job == "projects/p/jobs/a"
    assert mask.artifact == f"projects/p/artifacts/{(await gym.job('a')).artifact_sha256}"
    await db.write(lambda tx: tx.conn.execute(ARTIFACTS.delete().where(ARTIFACTS.c.sha256 != mask.artifact[-64:])))
    await gym.run()
    assert await gym.states() == ["SUCCEEDED", "SKIPPED", "SUCCEEDED"]
    assert (await gym.points())[1].state_reason == "INVALID_MODEL"
    assert (await spec_of(gym, "s-0003")).WhichOneof("method") == "movement"


async def spec_of(gym: Gym, job_id: str) -> job_pb2.CompressionSpec:
    return job_pb2.CompressionSpec.FromString((await gym.job(job_id)).spec)


async def test_a_child_that_its_user_cancels_or_deletes_is_not_made_again(gym: Gym) -> None:
    await gym.create(**ALONE, policy={"parallel": 2})
    await gym.controller.step()
    await gym.cancel_job("s-0001")
    await gym.cancel_job("s-0002")

    def delete(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", "s-0002"))
        assert job is not None
        lifecycle.remove(tx, job)

    await gym.db.write(delete)
    assert await gym.run() == ["s-0003", "s-0004"]
    assert await gym.states() == ["CANCELLED", "DELETED", "SUCCEEDED", "SUCCEEDED"]
    counts = (await gym.get()).counts
    assert (counts.cancelled, counts.deleted, counts.succeeded, counts.total) == (1, 1, 2, 4)


class Reuse:
    """A gym whose sweeps' data is a file."""

    def __init__(self, db: Database, executor: ScriptedExecutor, folder: Path, clock: TestClock) -> None:
        self.train, self.validation = folder / "train.tsv", folder / "dev.tsv"
        for file in (self.train, self.validation):
            file.write_text("text\tlabel\ngood\t1\nbad\t0\n")
        self.gym = Gym(db, executor, roots=Roots(allowed=(folder,)), clock=clock)
        self.clock = clock
        self.base = BASE | {
            "task": "text-classification",
            "dataset": {"train": server_path(self.train), "validation": server_path(self.validation)},
        }

    async def create(self, sweep_id: str, **changes: Any) -> sweep_pb2.Sweep:
        return await self.gym.create(
            sweep_id=sweep_id, base=self.base | changes, axes=AXES, policy={"reuse": True, "parallel": 2}
        )


@pytest.fixture
def reuse(db: Database, executor: ScriptedExecutor, tmp_path: Path, clock: TestClock) -> Reuse:
    return Reuse(db, executor, tmp_path, clock)


async def test_the_results_of_equal_jobs_are_taken(reuse: Reuse) -> None:
    gym = reuse.gym
    await reuse.create("first")
    assert len(await gym.run(sweep_id="first")) == 5
    await reuse.create("s")
    assert await gym.run() == []
    done = await gym.get()
    assert (done.state, done.counts.reused, done.counts.succeeded) == (done.SUCCEEDED, 4, 4)
    assert done.cost.runtime.ToMicroseconds() == 0
    points = await gym.points()
    assert [point.job.rpartition("/")[2] for point in points] == [f"first-000{number}" for number in range(1, 5)]
    await gym.servicer.DeleteSweep(sweep_pb2.DeleteSweepRequest(name="projects/p/sweeps/s"), None)
    assert (await gym.job("first-0001")).state == "SUCCEEDED", "jobs of others stay"


async def test_a_reused_result_stays_when_its_job_is_deleted(reuse: Reuse) -> None:
    gym = reuse.gym
    await reuse.create("first")
    await gym.run(sweep_id="first")
    await reuse.create("s")
    await gym.controller.step()
    await gym.servicer.DeleteSweep(sweep_pb2.DeleteSweepRequest(name="projects/p/sweeps/first"), None)
    assert (await gym.states())[:2] == ["SUCCEEDED"] * 2


@pytest.mark.parametrize("change", ["spec", "data", "version"])
async def test_what_differs_runs_again(reuse: Reuse, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gym = reuse.gym
    await reuse.create("first")
    await gym.run(sweep_id="first")
    if change == "data":
        later = reuse.clock.now / 1_000_000 + 10
        os.utime(reuse.train, (later, later))
    if change == "version":
        monkeypatch.setattr("mvprune.__version__", "0.0.1")
    await reuse.create("s", **({"seed": 3} if change == "spec" else {}))
    ran = [job for job in await gym.run() if job.startswith("s-")]
    assert len(ran) == 4
    assert (await gym.get()).counts.reused == 0


async def test_without_being_asked_nothing_is_reused(gym: Gym) -> None:
    await gym.create(sweep_id="first", **ALONE)
    await gym.run(sweep_id="first")
    await gym.create(**ALONE)
    assert len(await gym.run()) == 4


async def test_a_failed_point_says_why(gym: Gym) -> None:
    await gym.create(**ALONE)
    await gym.controller.step()
    await gym.fail("s-0001", FailureReason.NAN_LOSS)
    point = (await gym.points())[0]
    assert (point.state_reason, point.failure.message) == ("NAN_LOSS", "it went astray")


async def test_a_round_that_would_change_nothing_writes_nothing(gym: Gym, monkeypatch: pytest.MonkeyPatch) -> None:
    await gym.create(**ALONE, policy={"parallel": 1})
    await gym.controller.step()
    fence = await gym.start("s-0001")
    await gym.controller.step()
    steps = 0
    write = gym.db.write

    async def counted(work: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal steps
        steps += work is expand
        return await write(work, *args, **kwargs)

    monkeypatch.setattr(gym.db, "write", counted)
    for _ in range(5):
        await gym.controller.step()
    assert steps == 0
    await gym.finish("s-0001", fence)
    await gym.controller.step()
    assert (steps, (await gym.job("s-0002")).state.value) == (1, "QUEUED")
    await gym.servicer.PauseSweep(sweep_pb2.PauseSweepRequest(name=NAME), None)
    await gym.controller.step()
    assert steps == 2, "a command is seen at once"
