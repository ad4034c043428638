"""What users do to sweeps: create again, pause, cancel, retry, extend, change the policy, delete."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from tests.unit.service.conftest import ScriptedExecutor, TestClock

from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db import lifecycle, records, teachers
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.domain.failures import FailureReason
from mvprune_service.ids import ArtifactName, JobName

from .gym import BASE, NAME, Gym

AXES = [{"parameter": "density", "values": [0.1, 0.2, 0.3, 0.4]}]
ALONE = {"base": BASE | {"teacher": {"none": True}, "baseline": {"none": True}}, "axes": AXES}  # no baseline


@pytest.fixture
def gym(db: Database, executor: ScriptedExecutor) -> Gym:
    return Gym(db, executor)


async def ask(gym: Gym, what: str, **given: Any) -> sweep_pb2.Sweep:
    request = ParseDict({"name": NAME} | given, getattr(sweep_pb2, f"{what}Request")())
    return await getattr(gym.servicer, what)(request, None)  # type: ignore[no-any-return]


async def refused(gym: Gym, what: str, **given: Any) -> str:
    with pytest.raises(ApiError) as error:
        await ask(gym, what, **given)
    return error.value.reason


async def baselines(gym: Gym) -> list[str]:
    """The states of the dense jobs, by their creation."""
    found = await gym.db.read(records.page_of_jobs, "p", None, records.Order("create_time", False), None, 1000)
    return [job.state.value for job in found if job.job_id.startswith("sst2-baseline-")]


async def remove(gym: Gym, job_id: str) -> None:
    def work(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", job_id))
        assert job is not None
        lifecycle.remove(tx, job)

    await gym.db.write(work)


async def test_the_same_request_makes_one_sweep(gym: Gym) -> None:
    first = await gym.create(axes=AXES, request_id="r")
    assert await gym.create(axes=AXES, request_id="r") == first
    with pytest.raises(ApiError) as other:
        await gym.create(axes=AXES[:1], request_id="r", labels={"a": "b"})
    assert other.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(ApiError) as taken:
        await gym.create(axes=AXES, request_id="another")
    assert taken.value.reason == "ALREADY_EXISTS"
    with pytest.raises(ApiError) as taken:
        await gym.create(axes=AXES, validate_only=True)
    assert taken.value.reason == "ALREADY_EXISTS"
    assert len((await gym.servicer.ListSweeps(sweep_pb2.ListSweepsRequest(parent="projects/p"), None)).sweeps) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"axes": AXES, "points": [{"density": 0.1}, {"density": 0.7}], "exclude": [{"density": 0.2}]},
        {
            "axes": [
                *AXES,
                {"parameter": "method", "values": ["l0", "random"]},
                {"parameter": "penalty", "values": [1, 2]},
            ]
        },
        {"axes": AXES, "random": {"points": 3, "seed": 4}},
        {"search": {"seeds": 2}, "gates": [{"metric": "bytes", "max": 1}], "points": [{"density": 0.1}]},
    ],
)
async def test_validation_counts_what_creation_makes_and_stores_nothing(gym: Gym, given: dict[str, Any]) -> None:
    asked = await gym.create(**given, validate_only=True, request_id="r")
    assert not (await gym.servicer.ListSweeps(sweep_pb2.ListSweepsRequest(parent="projects/p"), None)).sweeps
    made = await gym.create(**given, request_id="r")
    assert asked.counts == made.counts
    assert (asked.notes, asked.spec, asked.policy) == (made.notes, made.spec, made.policy)
    ran = [job for job in await gym.run() if job.startswith("s-")]
    assert len(ran) <= asked.estimate.jobs
    assert ("search" in given) or len(ran) == asked.estimate.jobs == made.counts.total
    assert len(await baselines(gym)) == (await gym.get()).counts.baselines >= asked.estimate.baselines > 0


@pytest.mark.slow
async def test_a_pause_lets_live_jobs_end_and_creates_none(gym: Gym) -> None:
    await gym.create(**ALONE, policy={"parallel": 2})
    await gym.controller.step()
    assert (await ask(gym, "PauseSweep")).state == sweep_pb2.Sweep.PAUSED
    await gym.succeed("s-0001")
    await gym.controller.step()
    assert await gym.states() == ["SUCCEEDED", "QUEUED", "PENDING", "PENDING"]
    assert (await gym.points())[0].metrics["eval/accuracy"] == 0.9
    assert (await ask(gym, "ResumeSweep")).state == sweep_pb2.Sweep.ACTIVE
    assert await gym.run() == ["s-0002", "s-0003", "s-0004"]
    for what in ("PauseSweep", "ResumeSweep", "CancelSweep"):
        assert await refused(gym, what) == "WRONG_STATE"


async def test_cancel_skips_what_has_no_job_and_ends_what_is_live(gym: Gym) -> None:
    await gym.create(axes=AXES, policy={"parallel": 2})
    await gym.controller.step()
    assert (await ask(gym, "CancelSweep", reason="enough")).state == sweep_pb2.Sweep.CANCELLING
    assert (await ask(gym, "CancelSweep")).state == sweep_pb2.Sweep.CANCELLING
    await gym.controller.step()
    await gym.controller.step()
    points = await gym.points()
    assert await gym.states() == ["CANCELLED", "CANCELLED", "SKIPPED", "SKIPPED"]
    assert {point.state_reason for point in points[2:]} == {"SWEEP_CANCELLED"}
    done = await gym.get()
    assert (done.state, done.counts.cancelled, done.counts.skipped) == (done.CANCELLED, 2, 2)
    assert done.HasField("end_time")
    assert await baselines(gym) == ["CANCELLED"]
    events = (await gym.servicer.ListSweepEvents(sweep_pb2.ListSweepEventsRequest(parent=NAME), None)).events
    assert [(event.sequence, event.type) for event in events] == [(1, "SWEEP_CREATED"), (2, "CANCEL"), (3, "CANCELLED")]
    assert (await ask(gym, "CancelSweep")).state == sweep_pb2.Sweep.CANCELLED
    assert await refused(gym, "ExtendSweep", points=[{"density": 0.5}]) == "WRONG_STATE"


async def test_a_paused_sweep_is_cancelled(gym: Gym) -> None:
    await gym.create(**ALONE)
    await ask(gym, "PauseSweep")
    await ask(gym, "CancelSweep")
    await gym.controller.step()
    assert await gym.state() == "CANCELLED"
    assert await gym.states() == ["SKIPPED"] * 4


async def test_a_cancelled_sweep_waits_for_jobs_that_stop_and_a_whole_result_wins(gym: Gym) -> None:
    await gym.create(**ALONE, policy={"parallel": 2})
    await gym.controller.step()
    fence = await gym.start("s-0001")
    other = await gym.start("s-0002")
    await ask(gym, "CancelSweep")
    await gym.controller.step()
    await gym.controller.step()
    assert (await gym.states(), await gym.state()) == (["RUNNING", "RUNNING", "SKIPPED", "SKIPPED"], "CANCELLING")
    await gym.finish("s-0001", fence)
    await gym.stopped(other)
    await gym.controller.step()
    assert (await gym.states(), await gym.state()) == (["SUCCEEDED", "CANCELLED", "SKIPPED", "SKIPPED"], "CANCELLED")
    assert (await gym.get()).recommendation.point == 1


async def test_a_baseline_that_other_jobs_wait_for_goes_on(gym: Gym) -> None:
    await gym.create(axes=AXES, policy={"parallel": 1})
    await gym.controller.step()
    spec = job_pb2.CompressionSpec.FromString((await gym.points_rows())[0].spec)
    spec.target_density = 0.77
    new = lifecycle.NewJob("p", "outside", spec, job_pb2.ExecutionPolicy(max_attempts=1), creator="somebody")
    await gym.db.write(lambda tx: lifecycle.create(tx, teachers.with_teacher(tx, new), actor="somebody"))
    assert await baselines(gym) == ["QUEUED"]
    await ask(gym, "CancelSweep")
    await gym.controller.step()
    await gym.controller.step()
    assert (await gym.state(), await baselines(gym)) == ("CANCELLED", ["QUEUED"])


async def test_a_sweep_ends_after_the_baseline_that_it_cancels(gym: Gym) -> None:
    await gym.create(axes=AXES, policy={"parallel": 4})
    await gym.controller.step()
    (teacher,) = [job.job_id for job in await gym.queued()]
    fence = await gym.start(teacher)
    await ask(gym, "CancelSweep")
    for _ in range(3):
        await gym.controller.step()
    assert (await gym.state(), await baselines(gym)) == ("CANCELLING", ["CANCELLING"])
    await gym.stopped(fence)
    await gym.controller.step()
    assert (await gym.state(), await baselines(gym)) == ("CANCELLED", ["CANCELLED"])


@pytest.mark.slow
async def test_a_retry_runs_only_what_is_missing(gym: Gym) -> None:
    await gym.create(**ALONE)
    assert await gym.run(failing=("s-0002", "s-0003")) == ["s-0001", "s-0002", "s-0003", "s-0004"]
    assert (await gym.get()).counts.failed == 2
    await remove(gym, "s-0003")
    await remove(gym, "s-0004")
    assert await gym.states() == ["SUCCEEDED", "FAILED", "DELETED", "SUCCEEDED"]
    before = await gym.points()
    again = await ask(gym, "RetrySweep")
    assert (again.state, again.counts.pending, again.HasField("end_time")) == (again.ACTIVE, 2, False)
    assert await gym.run() == ["s-0002", "s-0003"]
    after = await gym.points()
    assert (after[0], after[3]) == (before[0], before[3]), "what has a result stays as it is"
    assert await gym.states() == ["SUCCEEDED"] * 4
    ended = await gym.get()
    assert await ask(gym, "RetrySweep") == ended, "nothing is missing"


async def test_a_retry_after_cancel_runs_the_rest(gym: Gym) -> None:
    await gym.create(axes=AXES, policy={"parallel": 1})
    await gym.controller.step()
    await gym.resolve()
    await gym.succeed((await gym.queued())[0].job_id)
    await gym.resolve()
    await gym.succeed("s-0001")
    await gym.controller.step()
    await ask(gym, "CancelSweep")
    for _ in range(2):
        await gym.controller.step()
    assert await gym.states() == ["SUCCEEDED", "CANCELLED", "SKIPPED", "SKIPPED"]
    await ask(gym, "RetrySweep")
    assert await gym.run() == ["s-0002", "s-0003", "s-0004"]
    assert await baselines(gym) == ["SUCCEEDED"]


async def test_a_failed_baseline_fails_no_further_batch_and_is_retried_first(gym: Gym) -> None:
    await gym.create(axes=AXES, policy={"parallel": 2})
    await gym.controller.step()
    (teacher,) = await gym.queued()
    await gym.fail(teacher.job_id)
    await gym.resolve()
    assert await gym.run() == []
    assert await baselines(gym) == ["FAILED"], "it is not trained again for each batch"
    points = await gym.points()
    assert [point.state_reason for point in points] == ["TEACHER_FAILED"] * 4
    assert await gym.states() == ["FAILED", "FAILED", "SKIPPED", "SKIPPED"]
    assert (await gym.get()).state_reason == "NOTHING_SUCCEEDED"
    await ask(gym, "RetrySweep")
    assert await gym.run() == [teacher.job_id, "s-0001", "s-0002", "s-0003", "s-0004"]
    assert await baselines(gym) == ["SUCCEEDED"]


async def test_a_retry_trains_a_baseline_that_was_deleted(gym: Gym) -> None:
    await gym.create(axes=AXES[:1], policy={"parallel": 4})
    await gym.controller.step()
    (teacher,) = await gym.queued()
    await gym.fail(teacher.job_id)
    await gym.resolve()
    await gym.run()
    await remove(gym, teacher.job_id)
    await ask(gym, "RetrySweep")
    ran = await gym.run()
    assert [job for job in ran if job.startswith("s-")] == ["s-0001", "s-0002", "s-0003", "s-0004"]
    assert await gym.states() == ["SUCCEEDED"] * 4
    assert await baselines(gym) == ["SUCCEEDED"]


async def test_a_retry_goes_on_with_what_the_budget_left_of_a_retry(gym: Gym, clock: TestClock) -> None:
    """A point whose job was to run again, and was skipped then, has a job all the same."""
    await gym.create(**ALONE, policy={"max_runtime": "100s"})
    await gym.controller.step()
    await gym.cancel_job("s-0001")
    await gym.run()
    await ask(gym, "RetrySweep")
    clock.pass_seconds(101)
    await gym.controller.step()
    assert (await gym.states())[0] == "SKIPPED"
    assert (await gym.get()).state_reason == "BUDGET_USED"
    await ask(gym, "RetrySweep")
    assert await gym.run() == ["s-0001"]
    assert await gym.states() == ["SUCCEEDED"] * 4


@pytest.mark.slow
async def test_an_extension_appends_what_is_new(gym: Gym) -> None:
    await gym.create(**ALONE)
    await gym.run()
    axes = [{"parameter": "density", "values": [0.4, 0.5]}]
    more = await ask(gym, "ExtendSweep", axes=axes, points=[{"density": 0.1}, {"density": 0.6}, {"density": 0.5}])
    assert (more.state, more.counts.total, more.counts.pending) == (more.ACTIVE, 6, 2)
    assert [dict(point) for point in more.spec.points] == [{"density": 0.5}, {"density": 0.6}]
    assert await gym.run() == ["s-0005", "s-0006"]
    ended = await gym.get()
    assert await ask(gym, "ExtendSweep", axes=axes) == ended, "nothing is new"
    events = await gym.servicer.ListSweepEvents(sweep_pb2.ListSweepEventsRequest(parent=NAME), None)
    assert [event.sequence for event in events.events] == list(range(1, len(events.events) + 1))
    assert [event.type for event in events.events] == ["SWEEP_CREATED", "SUCCEEDED", "EXTEND", "SUCCEEDED"]


async def test_an_extension_that_only_validates_tells_what_it_would_add_and_stores_nothing(gym: Gym) -> None:
    await gym.create(**ALONE)
    await gym.run()
    before, points = await gym.get(), await gym.points()
    axes = [{"parameter": "density", "values": [0.4, 0.5]}]
    extended = await ask(gym, "ExtendSweep", axes=axes, points=[{"density": 0.6}], validateOnly=True)
    added = extended.counts.total - before.counts.total
    assert added > 0
    assert (
        extended.counts.pending - before.counts.pending == len(extended.spec.points) == extended.estimate.jobs == added
    )
    assert extended.estimate.text.startswith(f"{added} jobs + ")
    assert (await gym.get(), await gym.points()) == (before, points)
    done = await ask(gym, "ExtendSweep", axes=axes, points=[{"density": 0.6}])
    assert (done.counts.total, list(done.spec.points)) == (extended.counts.total, list(extended.spec.points))
    again = await ask(gym, "ExtendSweep", axes=axes, validateOnly=True)
    assert (again.counts.total, again.HasField("estimate")) == (done.counts.total, False)


async def test_an_extension_that_only_validates_is_refused_as_one_that_is_stored(gym: Gym) -> None:
    await gym.create(**ALONE)
    points = [{"density": 0.6}]
    assert await refused(gym, "ExtendSweep", etag="99", points=points, validateOnly=True) == "ETAG_MISMATCH"
    await ask(gym, "CancelSweep")
    assert await refused(gym, "ExtendSweep", points=points, validateOnly=True) == "WRONG_STATE"


async def test_the_policy_changes_while_the_sweep_is_active(gym: Gym) -> None:
    await gym.create(**ALONE, policy={"parallel": 1, "max_failed": 3})
    await gym.controller.step()
    assert await gym.states() == ["QUEUED", "PENDING", "PENDING", "PENDING"]
    changed = await ask(gym, "UpdateSweepPolicy", policy={"parallel": 3}, updateMask="parallel,maxFailed")
    assert (changed.policy.parallel, changed.policy.HasField("max_failed")) == (3, False)
    await gym.controller.step()
    assert await gym.states() == ["QUEUED", "QUEUED", "QUEUED", "PENDING"]
    await ask(gym, "UpdateSweepPolicy", policy={"parallel": 1})
    await gym.succeed("s-0001")
    await gym.controller.step()
    assert await gym.states() == ["SUCCEEDED", "QUEUED", "QUEUED", "PENDING"], "those that are live go on"


async def test_an_etag_guards_every_change(gym: Gym) -> None:
    etag = (await gym.create(**ALONE)).etag
    await ask(gym, "PauseSweep", etag=etag)
    for what, given in {
        "CancelSweep": {},
        "ResumeSweep": {},
        "RetrySweep": {},
        "ExtendSweep": {"points": [{"density": 0.6}]},
        "UpdateSweepPolicy": {"policy": {"parallel": 9}},
        "DeleteSweep": {},
    }.items():
        assert await refused(gym, what, etag=etag, **given) == "ETAG_MISMATCH"


async def test_results_and_artifacts_survive_the_jobs_and_a_sweep_goes_with_its_jobs(gym: Gym) -> None:
    await gym.create(axes=AXES)
    assert await refused(gym, "DeleteSweep") == "SWEEP_NOT_FINISHED"
    await gym.run()
    before, points = await gym.get(), await gym.points()
    await remove(gym, "s-0001")
    assert await gym.points() == points
    after = await gym.get()
    assert (after.counts.succeeded, after.recommendation) == (4, before.recommendation)
    await ask(gym, "DeleteSweep")
    assert await gym.db.read(records.job_named, JobName("p", "s-0002")) is None
    assert await baselines(gym) == ["SUCCEEDED"], "other jobs may share it"
    for point in points:
        sha256 = point.artifact.rpartition("/")[2]
        assert await gym.db.read(records.artifact_named, ArtifactName("p", sha256)) is not None
    await gym.create(axes=AXES)
    assert len(await gym.run()) == 4, "the name is free again, and the baseline is there"


@pytest.mark.slow
async def test_a_sweep_whose_job_was_retried_by_hand_is_not_deleted(gym: Gym) -> None:
    await gym.create(**ALONE)
    await gym.run(failing=("s-0001",))

    def again(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", "s-0001"))
        assert job is not None
        lifecycle.retry(tx, job, actor="somebody")

    await gym.db.write(again)
    assert await refused(gym, "DeleteSweep") == "SWEEP_NOT_FINISHED"
    await gym.fail("s-0001", FailureReason.NAN_LOSS)
    await ask(gym, "DeleteSweep")


async def test_an_ended_sweep_takes_in_the_result_of_a_job_that_was_retried_by_hand(gym: Gym) -> None:
    await gym.create(**ALONE)
    every = ("s-0001", "s-0002", "s-0003", "s-0004")
    await gym.run(failing=every)
    ended = await gym.get()
    assert (ended.state, ended.state_reason) == (ended.FAILED, "NOTHING_SUCCEEDED")

    def again(tx: Tx, job_id: str) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", job_id))
        assert job is not None
        lifecycle.retry(tx, job, actor="somebody")

    for done, job_id in enumerate(every[:2], start=1):
        await gym.db.write(again, job_id)
        await gym.succeed(job_id)
        now = await gym.get()
        assert (now.state, now.state_reason, now.end_time) == (now.SUCCEEDED, "", ended.end_time)
        assert (now.counts.succeeded, now.counts.failed) == (done, 4 - done)
        assert now.recommendation.point in range(1, done + 1)
        assert (await gym.points())[done - 1].artifact
    assert await gym.states() == ["SUCCEEDED", "SUCCEEDED", "FAILED", "FAILED"]
    await gym.db.write(again, "s-0003")
    await ask(gym, "RetrySweep")
    await gym.succeed("s-0003")
    now = await gym.get()
    assert (now.state, now.counts.succeeded) == (now.ACTIVE, 3), "an active sweep takes it in at its next step"
    assert "s-0004" in await gym.run()
    assert await gym.states() == ["SUCCEEDED"] * 4


async def test_points_are_listed_by_number_and_by_the_front(gym: Gym) -> None:
    await gym.create(**ALONE)
    await gym.run()
    request = sweep_pb2.ListSweepPointsRequest(parent=NAME, numbers=[4, 2])
    assert [point.number for point in (await gym.servicer.ListSweepPoints(request, None)).points] == [2, 4]
    optimal = {point.number for point in await gym.points() if point.optimal}
    request.optimal_only = True
    found = {point.number for point in (await gym.servicer.ListSweepPoints(request, None)).points}
    assert found == optimal & {2, 4}
