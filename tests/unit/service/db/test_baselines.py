"""Jobs whose dense metrics come from another job: who is the baseline, and what a job waits for."""

from __future__ import annotations

import pytest
from tests.conftest import Tiny, server_path
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock
from tests.unit.service.db.test_teachers import SHA, School

from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db.engine.database import Database
from mvprune_service.stores.base import BlobStore


@pytest.fixture
def school(
    db: Database, store: BlobStore, jobs: Jobs, executor: ScriptedExecutor, clock: TestClock, tiny: Tiny
) -> School:
    return School(db, store, jobs, executor, clock, tiny)


async def test_a_baseline_is_trained_first_and_teaches_unless_another_does(school: School) -> None:
    first = await school.submit("a", teacher={"alpha": 0.5}, baseline={"train": True})
    dense = first.spec.baseline.job
    assert first.spec.teacher == job_pb2.Teacher(job=dense, alpha=0.5)
    assert dense.startswith("projects/p/jobs/text-classification-baseline-")
    assert (await school.job(dense)).display_name == "baseline of a"
    assert (await school.job(dense)).spec.target_density == 1
    second = await school.submit("b", teacher={"none": True}, baseline={"train": True})
    assert second.spec.baseline.job == dense
    assert second.spec.teacher == job_pb2.Teacher(none=True)
    third = await school.submit("c", teacher={"train": True})
    assert third.spec.teacher.job == dense, "teachers and baselines are the same jobs"
    assert not third.spec.HasField("baseline")
    assert len(await school.all()) == 4


async def test_the_job_waits_for_its_baseline_and_receives_its_artifact(school: School) -> None:
    student = await school.submit(teacher={"none": True}, baseline={"train": True})
    await school.scheduler.step()
    assert (await school.job(student.name)).state_reason == "WAITING_FOR_TEACHER"
    await school.succeed(student.spec.baseline.job)
    await school.scheduler.step()
    await school.scheduler.step()
    _, claimed = await school.claim(student.name)
    assert claimed.teacher_manifest_sha256 == SHA


async def test_a_baseline_that_is_lost_fails_the_job(school: School) -> None:
    student = await school.submit("a", teacher={"none": True}, baseline={"train": True})
    baseline = student.spec.baseline.job
    await school.scheduler.step()
    await school.fail(baseline)
    await school.scheduler.step()
    student = await school.job(student.name)
    words = f"the baseline's job {baseline} is FAILED (NAN_LOSS: went astray); retry that one first, then this one"
    assert student.failure == job_pb2.Failure(reason="TEACHER_FAILED", message=words)

    again = await school.submit("b", teacher={"none": True}, baseline={"train": True})
    await school.servicer.CancelJob(job_pb2.CancelJobRequest(name=again.spec.baseline.job), None)
    await school.servicer.DeleteJob(job_pb2.DeleteJobRequest(name=again.spec.baseline.job), None)
    await school.scheduler.step()
    said = (await school.job(again.name)).failure.message
    assert said == f"the baseline's job {again.spec.baseline.job} was deleted before its metrics were read"


@pytest.mark.parametrize("given", ["dense", "projects/p/jobs/dense"])
async def test_a_dense_job_is_a_baseline_under_its_id_and_its_name(school: School, given: str) -> None:
    await school.submit("dense", teacher=None, target_density=1.0)
    for validate_only in (True, False):
        job = await school.submit(teacher=None, baseline={"job": given}, validate_only=validate_only)
        assert job.spec.baseline.job == job.spec.teacher.job == "projects/p/jobs/dense"
    again = await school.submit("again", teacher=job.spec.teacher, baseline=job.spec.baseline)
    assert again.spec == job.spec, "a stored spec can be submitted"


async def test_a_job_that_cannot_be_distilled_has_a_baseline_without_teacher(school: School, tiny: Tiny) -> None:
    data = dict.fromkeys(("train", "validation"), server_path(tiny.train.with_suffix(".txt")))
    tiny.train.with_suffix(".txt").write_text("the film was good and fine\n" * 50)
    job = await school.submit(task="masked-lm", dataset=data, teacher=None, baseline={"train": True})
    assert job.spec.baseline.job
    assert not job.spec.HasField("teacher")


async def test_jobs_that_cannot_be_a_baseline(school: School) -> None:
    await school.submit("pruned", teacher=None)
    refused = await school.refused("baseline.job", teacher={"none": True}, baseline={"job": "pruned"})
    assert refused == "must be a job with density 1, got projects/p/jobs/pruned, which has the density 0.1"
    both = {"teacher": {"job": "pruned"}, "baseline": {"job": "pruned"}}
    assert "must be a job with density 1" in await school.refused("baseline.job", **both)
    await school.submit("rounded", teacher=None, target_density=1.0, activations="INT8")
    refused = await school.refused("baseline.job", teacher={"none": True}, baseline={"job": "rounded"})
    assert refused == "must be a job with fp32 activations, got projects/p/jobs/rounded, which has int8"
    refused = await school.refused("baseline.job", teacher={"none": True}, baseline={"job": "absent"})
    assert "must be a job that exists, got projects/p/jobs/absent" in refused
    refused = await school.refused("baseline.job", teacher={"none": True}, baseline={"job": ""})
    assert "must be the id of a job" in refused


async def test_a_delta_may_be_a_baseline_without_its_base_but_no_teacher(school: School) -> None:
    school.allow("s3://models")
    dense = {"model": "s3://models/bert", "delta": True, "target_density": 1.0}
    await school.submit("delta", teacher=None, **dense)
    school.allow()
    await school.submit("a", teacher={"none": True}, baseline={"job": "delta"})
    assert "base model" in await school.refused("baseline.job", teacher=None, baseline={"job": "delta"})


@pytest.mark.parametrize("metric", ["delta/accuracy", "dense/accuracy"])
async def test_gates_on_dense_metrics_need_a_baseline(school: School, metric: str) -> None:
    policy = {"gates": [{"metric": metric, "min": -0.5}]}
    with pytest.raises(ApiError) as caught:
        await school.submit(teacher={"none": True}, baseline={"none": True}, policy=policy)
    (violation,) = caught.value.violations
    assert violation.field == "job.policy.gates[0].metric"
    await school.submit(teacher={"none": True}, baseline={"train": True}, policy=policy)
