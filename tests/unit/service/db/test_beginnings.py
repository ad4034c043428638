"""Jobs that begin with the artifact of another job, as their mask or to go on from: which job can give one, and what
the job is pinned to."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import delete, update
from tests.conftest import Tiny, server_path
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock
from tests.unit.service.db.test_teachers import SHA, School

from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.stores.base import BlobStore

ARTIFACT = f"projects/p/artifacts/{SHA}"
FIELD = "locked_mask.mask_from.job"


@pytest.fixture
def school(
    db: Database, store: BlobStore, jobs: Jobs, executor: ScriptedExecutor, clock: TestClock, tiny: Tiny
) -> School:
    return School(db, store, jobs, executor, clock, tiny)


def masked(job: str = "first", **more: Any) -> dict[str, Any]:
    """The spec of a job with the mask of another."""
    values = {"movement": None, "target_density": None, "teacher": None}
    return values | {"locked_mask": {"mask_from": {"job": job}}} | more


async def first(school: School, **spec: Any) -> job_pb2.Job:
    """A job that has SUCCEEDED."""
    created = await school.submit("first", **({"teacher": None} | spec))
    await school.scheduler.step()
    await school.succeed(created.name)
    return await school.job(created.name)


@pytest.mark.parametrize("given", ["first", "projects/p/jobs/first"])
async def test_the_job_is_pinned_to_the_artifact_that_the_masks_job_has(school: School, given: str) -> None:
    await first(school)
    created = await school.submit("second", **masked(given))
    expected = job_pb2.Mask(job="projects/p/jobs/first", artifact=ARTIFACT)
    assert created.spec.locked_mask.mask_from == expected
    checked = await school.submit("third", validate_only=True, **masked(given))
    assert checked.spec.locked_mask.mask_from == expected
    await school.scheduler.step()
    _, claimed = await school.claim(created.name)
    assert claimed.spec.locked_mask.mask_from.artifact == ARTIFACT
    assert claimed.teacher_manifest_sha256 == ""


async def test_a_repeated_request_is_the_same_job_after_the_artifact_was_deleted(school: School, db: Database) -> None:
    await first(school)
    created = await school.submit("second", request_id="r", **masked())
    await db.write(lambda tx: tx.conn.execute(delete(ARTIFACTS)))
    assert (await school.submit("second", request_id="r", **masked())).uid == created.uid


async def test_a_job_that_has_no_result_yet_is_not_waited_for(school: School) -> None:
    await school.submit("first", teacher=None)
    text = await school.refused(FIELD, **masked())
    assert text == "must be a job that has SUCCEEDED, got projects/p/jobs/first, which is QUEUED; it is not waited for"
    await school.scheduler.step()
    await school.fail("projects/p/jobs/first")
    assert "which is FAILED" in await school.refused(FIELD, **masked())


async def test_what_is_no_job_of_the_project_is_refused(school: School) -> None:
    await first(school)
    assert "must be a job that exists, got projects/p/jobs/x" in await school.refused(FIELD, **masked("x"))
    for other in ("projects/q/jobs/first", "No Job"):
        text = await school.refused(FIELD, **masked(other))
        assert text == f"must be the id of a job, or its name, projects/p/jobs/JOB, got {other!r}"


async def test_an_artifact_that_was_deleted_is_refused(school: School, db: Database) -> None:
    await first(school)
    await db.write(lambda tx: tx.conn.execute(delete(ARTIFACTS)))
    assert "whose artifact was deleted" in await school.refused(FIELD, **masked())


async def test_a_delta_is_refused(school: School) -> None:
    await first(school, delta=True)
    text = await school.refused(FIELD, **masked())
    assert "got projects/p/jobs/first, whose artifact is a delta; export it (mvpctl export --to dense)" in text


async def test_a_model_of_another_size_is_refused(school: School, db: Database) -> None:
    job = await first(school)
    job.model_size.encoder_parameters += 1
    other = job.model_size.SerializeToString()
    await db.write(lambda tx: tx.conn.execute(update(JOBS).values(model_size=other)))
    text = await school.refused(FIELD, **masked())
    assert "must be a job for a model of the same architecture and size, got projects/p/jobs/first" in text


async def test_an_artifact_without_zeros_needs_a_density(school: School, db: Database) -> None:
    await first(school)

    def dense(tx: Tx) -> None:
        tx.conn.execute(update(ARTIFACTS).values(manifest={"files": [], "accounting": {"density": 1.0}}))

    await db.write(dense)
    assert "whose artifact has zeros, got projects/p/jobs/first" in await school.refused(FIELD, **masked())
    created = await school.submit("second", **masked(target_density=0.5))
    assert created.spec.locked_mask.mask_from.artifact == ARTIFACT


async def test_an_artifact_from_which_heads_were_removed_is_refused(school: School, db: Database) -> None:
    await first(school)
    layers = [{"name": "query.weight", "shape": [30, 50], "density": 0.6, "nonzero": 1500}]
    manifest = {"files": [], "accounting": {"density": 0.6, "prunable_weights": 2500}, "layers": layers}
    await db.write(lambda tx: tx.conn.execute(update(ARTIFACTS).values(manifest=manifest)))
    text = await school.refused(FIELD, **masked())
    assert "all matrices of its model, got projects/p/jobs/first, from which heads, units or layers were" in text
    manifest["accounting"] = {"density": 0.6, "prunable_weights": 1500}
    await db.write(lambda tx: tx.conn.execute(update(ARTIFACTS).values(manifest=manifest)))
    assert (await school.submit("second", **masked())).spec.locked_mask.mask_from.artifact == ARTIFACT


@pytest.mark.parametrize(
    ("spec", "field", "text"),
    [
        ({"locked_mask": {}}, "target_density", "must be above 0, at most 1, got 0 or none"),
        (
            {"locked_mask": {}, "target_density": 0.5},
            "locked_mask.mask_from",
            "must be a model with zeros, or job:ID, with the method locked_mask, got none",
        ),
        ({"target_density": 1.0}, "target_density", "must be below 1 or unset with mask_from, got 1"),
        (
            {"locked_mask": {"mask_from": {"job": "first", "revision": "v1"}}},
            "locked_mask.mask_from.revision",
            "must be unset without a model of the hub, got 'v1'",
        ),
        (
            {"locked_mask": {"mask_from": {"job": "first", "artifact": ARTIFACT}}},
            "locked_mask.mask_from.artifact",
            f"must be unset, got '{ARTIFACT}'; the server sets it to the artifact of the job",
        ),
        (
            {"locked_mask": {"mask_from": {"job": "first"}, "rewind": 1.5}},
            "locked_mask.rewind",
            "must be from 0 to 0.9999, got 1.5",
        ),
        (
            {"locked_mask": {"mask_from": {"model": "nobody/knows it"}}},
            "locked_mask.mask_from.model",
            "got 'nobody/knows it'",
        ),
        (
            {"locked_mask": {"mask_from": {"model": "bert-base-uncased"}}},
            "locked_mask.mask_from.model",
            "architecture and the size of the one that is pruned, got 'bert-base-uncased', which has 85,054,464",
        ),
    ],
)
async def test_a_mask_that_cannot_be_right_is_refused(
    school: School, spec: dict[str, Any], field: str, text: str
) -> None:
    await first(school)
    with pytest.raises(ApiError) as caught:
        await school.submit("second", **masked(**spec))
    found = dict(caught.value.violations)
    assert text in found[f"job.spec.{field}"]


async def test_a_folder_of_the_server_is_a_mask(school: School) -> None:
    folder = server_path(school.tiny.model)
    created = await school.submit(**masked(locked_mask={"mask_from": {"model": folder}}))
    assert created.spec.locked_mask.mask_from == job_pb2.Mask(model=folder)


def started(job: str = "job:first", density: float = 0.1) -> dict[str, Any]:
    """The spec of a job that goes on from another."""
    return {"movement": None, "obert": {}, "target_density": density, "teacher": None, "start_from": job}


async def test_a_job_that_goes_on_is_pinned_to_the_artifact_that_the_other_has(school: School) -> None:
    await first(school)
    created = await school.submit("second", **started())
    assert created.spec.start_from == "job:projects/p/jobs/first"
    assert created.spec.start_artifact == ARTIFACT
    await school.scheduler.step()
    _, claimed = await school.claim(created.name)
    assert claimed.spec.start_artifact == ARTIFACT


async def test_what_no_job_can_go_on_from_is_refused(school: School, db: Database) -> None:
    await first(school)
    for given, rule in [
        ("first", "must be job:ID, the artifact of a job, got 'first'"),
        ("job:x", "must be a job that exists, got projects/p/jobs/x"),
    ]:
        assert rule in await school.refused("start_from", **started(given))
    text = await school.refused("start_artifact", **started(), start_artifact=ARTIFACT)
    assert "the server sets it to that of start_from" in text
    sparse = {"accounting": {"density": 0.05}}
    await db.write(lambda tx: tx.conn.execute(update(ARTIFACTS).values(manifest=sparse)))
    text = await school.refused("start_from", **started())
    assert "no sparser than the density 0.1, got projects/p/jobs/first, which keeps 0.05; give a lower density" in text
