"""The estimate of a job's time."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from sqlalchemy import insert, update
from tests.unit.service.conftest import Jobs

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import estimates as estimates_module
from mvprune_service.db import teachers
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.estimates import Asked, Estimates, estimate_sweep
from mvprune_service.db.leases import Fence, claim, schedule
from mvprune_service.db.tables.attempts import METRICS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.teaching import dense_spec

START, LOADING, A_STEP = 1_000, 20.0, 0.5  # seconds


def spec(**training: Any) -> job_pb2.CompressionSpec:
    base = {"model": "m", "task": "sst2", "target_density": 0.1, "movement": {}}
    return ParseDict(base | {"training": training}, job_pb2.CompressionSpec())


async def begin(
    db: Database, jobs: Jobs, job_id: str, made: job_pb2.CompressionSpec, *losses: tuple[str, int], **resources: float
) -> str:
    """A running job that has loaded for 20 s, and made steps of 0.5 s each: name of the training, and their number."""
    uid = await jobs.create(job_id, **resources)

    def work(tx: Tx) -> None:
        assert schedule(tx, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=60 * SECOND)

    await db.write(work)
    live = await jobs.live(job_id)
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(claim, fence, runner_id="r", node="n", lease_us=SECOND)
    row = {"job_uid": uid, "attempt_uid": live.attempt.uid, "attempt": 1, "value": 1.0}
    points, now = [], START + LOADING
    for name, steps in losses:
        for step in sorted({1, max(1, steps // 2), steps}):
            time_us = int((now + step * A_STEP) * SECOND)
            points.append(row | {"metric": f"{name}/loss", "step": step, "time_us": time_us})
        now += steps * A_STEP
    name = made.WhichOneof("method")
    columns = {"model": made.model, "task": made.task, "method": name, "start_us": START * SECOND}

    def store(tx: Tx) -> None:
        tx.conn.execute(insert(METRICS), points)
        serialized = made.SerializeToString(deterministic=True)
        tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(spec=serialized, **columns))

    await db.write(store)
    return uid


async def change(db: Database, uid: str, **columns: object) -> None:
    await db.write(lambda tx: tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(**columns)) and None)


async def finish(
    db: Database, jobs: Jobs, job_id: str, made: job_pb2.CompressionSpec, steps: int, **resources: float
) -> None:
    """A job that loads for 20 s, trains for 0.5 s a step, and has ended."""
    uid = await begin(db, jobs, job_id, made, ("pruning", steps), **resources)
    await change(db, uid, state="SUCCEEDED", end_us=int((START + LOADING + steps * A_STEP) * SECOND))


async def run(db: Database, jobs: Jobs, job_id: str, made: job_pb2.CompressionSpec, done: int, steps: int) -> str:
    """A job in its first training of two, whose worker expects 12 s for what has no steps."""
    uid = await begin(db, jobs, job_id, made, ("dense", done))
    progress = job_pb2.Progress(phase="dense", step=done, total_steps=steps)
    progress.eta.FromSeconds(int((2 * steps - done) * A_STEP) + 12)
    now = int((START + LOADING + done * A_STEP) * SECOND)
    await change(db, uid, progress=progress.SerializeToString(), update_us=now)
    return uid


async def asked(db: Database, *specs: job_pb2.CompressionSpec, jobs: int = 1) -> sweep_pb2.SweepEstimate:
    asked = [Asked(spec, job_pb2.Resources(), spec.training.max_steps) for spec in specs]
    return await db.read(estimate_sweep, "p", asked, jobs)


async def asked_of_job(
    db: Database, spec: job_pb2.CompressionSpec, steps: int = 0, **resources: float
) -> tuple[float | None, str]:
    steps = steps or spec.training.max_steps
    return await Estimates(db).job("p", Asked(spec, job_pb2.Resources(**resources), steps))  # type: ignore[arg-type]


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
        spec(max_steps=400, evaluate_every=10),
        spec(epochs=3),
        ParseDict({"model": "other"}, spec(max_steps=400)),
        ParseDict({"teacher": {"train": True}}, spec(max_steps=400)),
    ],
    ids=["batch", "length", "evaluations", "epochs", "model", "teacher"],
)
async def test_what_cannot_be_compared_is_not_guessed(db: Database, jobs: Jobs, other: job_pb2.CompressionSpec) -> None:
    await finish(db, jobs, "a", spec(max_steps=400), 400)
    found = await asked(db, spec(max_steps=400), other, jobs=2)
    assert not found.HasField("runtime")
    assert "the time is not known yet, as no job" in found.text
    assert "for 1 of 2 configurations" in found.text
    assert (await asked_of_job(db, other))[0] is None
    assert (await asked_of_job(db, spec(max_steps=400), gpus=1))[0] is None, "it ran without a GPU"


async def test_only_jobs_with_as_many_gpus_are_compared(db: Database, jobs: Jobs) -> None:
    await finish(db, jobs, "a", spec(max_steps=400), 400, gpus=2)
    for resources, known in (({"gpus": 2}, True), ({"gpus": 1}, False), ({"gpus": 0}, False), ({}, False)):
        found, _ = await asked_of_job(db, spec(max_steps=400), **resources)
        assert (found is not None) is known, resources


async def test_nothing_is_measured_on_a_fresh_server(db: Database) -> None:
    assert await asked_of_job(db, spec(max_steps=400)) == (
        None,
        "not known yet: no job with this model, task, batch and length has made steps here; mvpctl get JOB shows the "
        "time left after the first steps",
    )


async def test_the_first_steps_of_a_running_job_count_where_none_has_finished(db: Database, jobs: Jobs) -> None:
    await run(db, jobs, "first", spec(max_steps=1_000), done=100, steps=1_000)
    seconds, text = await asked_of_job(db, spec(max_steps=3_000))
    assert seconds == pytest.approx(LOADING + 12 + 2 * 3_000 * A_STEP, abs=1), "a dense training and a pruning"
    assert text == "about 50.5 min of work (by the first 100 steps of job first, which still runs)"
    await finish(db, jobs, "done", spec(max_steps=1_000), 1_000)
    seconds, text = await asked_of_job(db, spec(max_steps=3_000))
    assert seconds == pytest.approx(LOADING + 3_000 * A_STEP, abs=1)
    assert "by the seconds a step of 1 finished job with this model" in text


@pytest.mark.parametrize(
    ("done", "columns"),
    [(5, {}), (100, {"attempt": 2}), (100, {"progress": job_pb2.Progress(phase="loading").SerializeToString()})],
    ids=["few steps", "a second attempt", "no eta"],
)
async def test_a_running_job_that_says_too_little_is_not_used(
    db: Database, jobs: Jobs, done: int, columns: dict[str, Any]
) -> None:
    uid = await run(db, jobs, "first", spec(max_steps=1_000), done=done, steps=1_000)
    if columns:
        await change(db, uid, **columns)
    assert (await asked_of_job(db, spec(max_steps=1_000)))[0] is None


async def test_another_method_is_named_where_none_with_this_one_was_measured(db: Database, jobs: Jobs) -> None:
    other = spec(max_steps=400)
    other.magnitude.SetInParent()
    await finish(db, jobs, "a", other, 400)
    seconds, text = await asked_of_job(db, spec(max_steps=400))
    assert seconds == pytest.approx(LOADING + 400 * A_STEP, abs=1)
    assert text.endswith(
        "with this model, task and batch and another method (magnitude), whose steps may take longer or shorter)"
    )
    await finish(db, jobs, "b", spec(max_steps=800), 800)
    assert "another method" not in (await asked_of_job(db, spec(max_steps=400)))[1]


async def test_steps_that_the_server_has_counted_compare_other_data(db: Database, jobs: Jobs) -> None:
    await finish(db, jobs, "a", spec(epochs=2), 1_000)
    other = spec(epochs=2)
    other.dataset.train = "/other.csv"
    assert (await asked_of_job(db, other))[0] is None
    assert (await asked_of_job(db, other, steps=200))[0] == pytest.approx(LOADING + 200 * A_STEP, abs=1)


async def test_a_dense_job_that_is_trained_first_has_a_time_of_its_own(db: Database, jobs: Jobs) -> None:
    """A baseline that exists is not trained again."""
    student = ParseDict({"baseline": {"train": True}}, spec(max_steps=400))
    done = ParseDict({"baseline": {"job": "projects/p/jobs/dense"}}, spec(max_steps=400))
    dense = dense_spec(student)
    await finish(db, jobs, "student", done, 400)
    await finish(db, jobs, "dense", dense, 200)
    own, base = LOADING + 400 * A_STEP, LOADING + 400 * A_STEP
    seconds, text = await asked_of_job(db, student)
    assert seconds == pytest.approx(own, abs=1)
    assert "of work, after its dense job of about 3.7 min (by" in text
    found = await asked(db, student, jobs=5)
    assert (found.baselines, found.runtime.ToSeconds()) == (1, pytest.approx(5 * own + base, abs=1))
    uid = await jobs.create("shared")
    await change(db, uid, teacher_key=teachers.digest(dense))
    assert "dense job" not in (await asked_of_job(db, student))[1]
    found = await asked(db, student, jobs=5)
    assert found.text.startswith("5 jobs + 0 baselines (1 more exist); about 18.3 min of work at 3.7 min each (by")


async def test_a_sweep_takes_what_its_configurations_take(db: Database, jobs: Jobs) -> None:
    await finish(db, jobs, "a", spec(max_steps=400), 400)
    found = await asked(db, spec(max_steps=400), spec(max_steps=1_200), jobs=2)
    assert found.runtime.ToSeconds() == pytest.approx(2 * LOADING + 1_600 * A_STEP, abs=1)


async def test_jobs_are_read_again_when_two_seconds_have_passed_or_when_asked_to(
    db: Database, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(estimates_module.time, "monotonic", lambda: now)
    estimates, asked = Estimates(db), Asked(spec(max_steps=400), job_pb2.Resources(), 400)
    assert (await estimates.job("p", asked))[0] is None
    await finish(db, jobs, "a", spec(max_steps=400), 400)
    assert (await estimates.job("p", asked))[0] is None
    fresh = await estimates.job("p", asked, fresh=True)
    assert fresh[0] == pytest.approx(LOADING + 400 * A_STEP)
    assert await estimates.job("p", asked) == fresh
    await finish(db, jobs, "b", spec(max_steps=400), 400)
    assert "1 finished job" in (await estimates.job("p", asked))[1]
    now += 2.1
    assert "2 finished jobs" in (await estimates.job("p", asked))[1]
