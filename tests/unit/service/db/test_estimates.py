"""The estimate of a job's time."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from sqlalchemy import insert, update
from tests.unit.service.conftest import Jobs

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db.database import Database, Tx
from mvprune_service.db.estimates import estimate
from mvprune_service.db.leases import Fence, claim, schedule
from mvprune_service.db.models import JOBS, METRICS
from mvprune_service.domain.placement import Reserved

START, LOADING, A_STEP = 1_000, 20.0, 0.5  # seconds


def spec(**training: Any) -> job_pb2.CompressionSpec:
    base = {"model": "m", "task": "sst2", "target_density": 0.1, "movement": {}}
    return ParseDict(base | {"training": training}, job_pb2.CompressionSpec())


async def finish(db: Database, jobs: Jobs, job_id: str, made: job_pb2.CompressionSpec, steps: int) -> None:
    """A job that loads for 20 s, trains for 0.5 s a step, and has ended."""
    uid = await jobs.create(job_id)

    def work(tx: Tx) -> None:
        assert schedule(tx, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=60 * SECOND)

    await db.write(work)
    live = await jobs.live(job_id)
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(claim, fence, runner_id="r", node="n", lease_us=SECOND)
    seconds = LOADING + steps * A_STEP
    times = [(step, START + LOADING + step * A_STEP) for step in (steps // 4, steps // 2, steps)]

    def end(tx: Tx) -> None:
        row = {"job_uid": uid, "attempt_uid": live.attempt.uid, "attempt": 1, "metric": "pruning/loss", "value": 1.0}
        points = [row | {"step": step, "time_us": int(at * SECOND)} for step, at in times]
        tx.conn.execute(insert(METRICS), points)
        columns = {"state": "SUCCEEDED", "start_us": START * SECOND, "end_us": int((START + seconds) * SECOND)}
        serialized = made.SerializeToString(deterministic=True)
        tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(spec=serialized, **columns))

    await db.write(end)


async def asked(db: Database, *specs: job_pb2.CompressionSpec, jobs: int = 1) -> sweep_pb2.SweepEstimate:
    return await db.read(estimate, "p", specs, jobs, 0.0)


@pytest.mark.parametrize("steps", [100, 400, 3_000, 60_000])
async def test_the_time_is_that_of_the_steps(db: Database, jobs: Jobs, steps: int) -> None:
    await finish(db, jobs, "a", spec(max_steps=400), 400)
    found = await asked(db, spec(max_steps=steps))
    assert found.runtime.ToSeconds() == pytest.approx(LOADING + steps * A_STEP, abs=1)
    assert found.measured_jobs == 1
    assert "by the seconds a step of 1 finished job with this model, task, method and batch" in found.text


async def test_epochs_are_compared_with_epochs_over_the_same_data(db: Database, jobs: Jobs) -> None:
    await finish(db, jobs, "a", spec(epochs=2), 1_000)
    assert (await asked(db, spec(epochs=6))).runtime.ToSeconds() == pytest.approx(LOADING + 3_000 * A_STEP, abs=1)
    assert (await asked(db, spec(max_steps=500))).runtime.ToSeconds() == pytest.approx(LOADING + 250, abs=1)
    other = spec(epochs=6)
    other.dataset.train = "/other.csv"
    assert not (await asked(db, other)).HasField("runtime")


@pytest.mark.parametrize(
    "other",
    [
        spec(max_steps=400, batch_size=64),
        spec(max_steps=400, max_length=512),
        spec(epochs=3),
        ParseDict({"magnitude": {}}, spec(max_steps=400)),
        ParseDict({"teacher": {"train": True}}, spec(max_steps=400)),
    ],
    ids=["batch", "length", "epochs", "method", "teacher"],
)
async def test_what_cannot_be_compared_is_not_guessed(db: Database, jobs: Jobs, other: job_pb2.CompressionSpec) -> None:
    await finish(db, jobs, "a", spec(max_steps=400), 400)
    found = await asked(db, spec(max_steps=400), other, jobs=2)
    assert not found.HasField("runtime")
    assert found.text.endswith("whose steps can be compared has finished yet for 1 of 2 configurations")


async def test_a_sweep_takes_what_its_configurations_take(db: Database, jobs: Jobs) -> None:
    await finish(db, jobs, "a", spec(max_steps=400), 400)
    found = await asked(db, spec(max_steps=400), spec(max_steps=1_200), jobs=2)
    assert found.runtime.ToSeconds() == pytest.approx(2 * LOADING + 1_600 * A_STEP, abs=1)
