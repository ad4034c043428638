"""Jobs that learn from other jobs: who teaches, who shares a teacher, and what a student waits for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from tests.conftest import Tiny, server_path
from tests.unit.service.beating import steady
from tests.unit.service.conftest import Call, Jobs, ScriptedExecutor, TestClock

import mvprune
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.submissions import Submissions, capacity_of
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.changes import Changes
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.db import leases, projects
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.retries import Failure
from mvprune_service.domain.teaching import dense_spec
from mvprune_service.executors.base import Capacity, Node
from mvprune_service.secret import attempt_secret
from mvprune_service.stores.base import BlobStore

KEY = b"k" * 32
SHA = "ab" * 32
MANIFEST = {"files": [], "metrics": {"eval/accuracy": 0.5}, "primary_metric": "accuracy", "accounting": {}}


class School:
    """The service's parts that students and teachers meet, without their surroundings."""

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        jobs: Jobs,
        executor: ScriptedExecutor,
        clock: TestClock,
        tiny: Tiny,
    ) -> None:
        self.db, self.jobs, self.tiny = db, jobs, tiny
        self.executor = executor
        self.allow()
        self.worker = WorkerServicer(db, KEY, LostChunks(db, store), pace=steady(db))
        self.scheduler = Scheduler(db, executor, clock=clock)

    def allow(self, *buckets: str) -> None:
        """Jobs may name models in these buckets, and in no others."""
        roots = Roots(models=self.tiny.models, allowed=(self.tiny.train.parent,), buckets=buckets)
        changes = Changes()
        submissions = Submissions(self.db, roots, capacity_of(self.executor), quota=QueueQuota(100))
        self.servicer = JobServicer(self.db, changes, Feeds(self.db, changes), submissions, None)  # type: ignore[arg-type]

    async def submit(self, job_id: str = "student", *, parent: str = "projects/p", **spec: Any) -> job_pb2.Job:
        request = {name: spec.pop(name) for name in ("request_id", "validate_only") if name in spec}
        values = {
            "model": "tiny-bert",
            "task": "text-classification",
            "dataset": {"train": server_path(self.tiny.train), "validation": server_path(self.tiny.validation)},
            "movement": {},
            "target_density": 0.1,
            "teacher": {"train": True},
            "training": {"max_steps": 30},
        }
        policy = {"resources": {"cpus": 1.0}} | spec.pop("policy", {})
        job = job_pb2.Job(spec=job_pb2.CompressionSpec(**(values | spec)), policy=policy)
        call = job_pb2.CreateJobRequest(parent=parent, job_id=job_id, job=job, **request)
        created: job_pb2.Job = await self.servicer.CreateJob(call, Call())
        return created

    async def job(self, name: str) -> job_pb2.Job:
        found: job_pb2.Job = await self.servicer.GetJob(job_pb2.GetJobRequest(name=name), None)
        return found

    async def all(self) -> list[job_pb2.Job]:
        return list((await self.servicer.ListJobs(job_pb2.ListJobsRequest(parent="projects/p"), None)).jobs)

    async def claim(self, name: str) -> tuple[Fence, worker_pb2.ClaimAttemptResponse]:
        live = await self.jobs.live(name.rpartition("/")[2])
        fence = Fence(live.name, live.attempt.fencing_token)
        lease = worker_pb2.Lease(attempt=str(live.name), fencing_token=fence.token)
        secret = attempt_secret(KEY, str(live.name), fence.token)
        request = worker_pb2.ClaimAttemptRequest(lease=lease, runner_id="r", version=mvprune.__version__)
        return fence, await self.worker.ClaimAttempt(request, _Caller(secret))

    async def succeed(self, name: str) -> None:
        """Runs a scheduled job to its end."""
        fence, _ = await self.claim(name)
        await self.db.write(leases.offer, fence, SHA, actor="worker")
        live = await self.jobs.live(fence.attempt.job)
        await self.db.write(leases.publish, live.job.uid, live.attempt.uid, MANIFEST, 10)

    async def fail(self, name: str) -> None:
        fence, _ = await self.claim(name)
        await self.db.write(leases.fail_attempt, fence, Failure(FailureReason.NAN_LOSS, "went astray"), actor="worker")

    async def refused(self, field: str = "teacher.job", **spec: Any) -> str:
        """What is said about a field of the spec."""
        with pytest.raises(ApiError) as caught:
            await self.submit(**spec)
        (violation,) = caught.value.violations
        assert violation.field == f"job.spec.{field}"
        return violation.description


class _Caller:
    """The context of a worker's call."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def invocation_metadata(self) -> Any:
        return (("authorization", f"Bearer {self._secret}"),)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


@pytest.fixture
def school(
    db: Database, store: BlobStore, jobs: Jobs, executor: ScriptedExecutor, clock: TestClock, tiny: Tiny
) -> School:
    return School(db, store, jobs, executor, clock, tiny)


async def test_a_teacher_is_trained_first_and_then_its_model_is_given_to_the_student(school: School) -> None:
    student = await school.submit(teacher={"train": True, "alpha": 0.5})
    teacher = await school.job(student.spec.teacher.job)
    assert teacher.name.startswith("projects/p/jobs/text-classification-teacher-")
    assert teacher.display_name == "teacher of student"
    assert teacher.policy == student.policy
    assert teacher.spec == job_pb2.CompressionSpec(
        model="tiny-bert",
        task="text-classification",
        dataset=student.spec.dataset,
        magnitude={},
        target_density=1.0,
        training={"max_steps": 30},
        keep_fine_tuned=True,
    )
    assert student.spec.teacher.alpha == 0.5

    await school.scheduler.step()
    assert job_pb2.Job.State.Name((await school.job(teacher.name)).state) == "STARTING"
    student = await school.job(student.name)
    assert (job_pb2.Job.State.Name(student.state), student.state_reason) == ("QUEUED", "WAITING_FOR_TEACHER")
    _, claimed = await school.claim(teacher.name)
    assert claimed.teacher_manifest_sha256 == ""
    await school.succeed(teacher.name)
    await school.scheduler.step()  # the student hears of it,
    await school.scheduler.step()  # and is started
    student = await school.job(student.name)
    assert (job_pb2.Job.State.Name(student.state), student.state_reason) == ("STARTING", "")
    _, claimed = await school.claim(student.name)
    assert claimed.teacher_manifest_sha256 == SHA


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
async def test_a_teacher_that_is_trained_takes_room_in_the_queue_too(school: School, db: Database, limit: int) -> None:
    await db.write(projects.set_quotas, "p", max_queued_jobs=limit, max_running_gpus=None, max_upload_bytes=None)
    for number in range(limit // 2):
        await school.submit(f"student{number}", seed=number)
    with pytest.raises(ApiError, match=f"jobs of projects/p in the queue must be at most {limit}") as refused:
        await school.submit("late", seed=limit)
    assert refused.value.reason == "QUOTA_EXCEEDED"
    assert len(await school.all()) == limit // 2 * 2
    if limit % 2 and limit > 1:
        await school.submit("with", seed=0)  # its teacher is in the queue already
        assert len(await school.all()) == limit


async def test_a_student_that_waits_holds_up_nobody(school: School) -> None:
    await school.submit("a")
    other = await school.submit("b", teacher=None)
    await school.scheduler.step()
    assert job_pb2.Job.State.Name((await school.job(other.name)).state) == "STARTING"


async def test_students_of_one_kind_share_a_teacher(school: School) -> None:
    submitted = await asyncio.gather(
        school.submit("a"),
        school.submit("b", target_density=0.5, teacher={"train": True, "temperature": 4}),
        school.submit("c", movement=None, l0={}),
        school.submit("g", training={"max_steps": 30, "lr_density_exponent": 0}),
    )
    assert len({job.spec.teacher.job for job in submitted}) == 1
    assert len(await school.all()) == 5
    others = [
        await school.submit("d", seed=1),
        await school.submit("e", training={"max_steps": 31}),
        await school.submit("f", model=server_path(school.tiny.model)),
    ]
    assert len({job.spec.teacher.job for job in [submitted[0], *others]}) == 4


def test_the_preset_short_is_the_default_of_a_dense_job() -> None:
    student = job_pb2.CompressionSpec(model="m", task="sst2", target_density=0.1, training={"preset": "SHORT"})
    same = job_pb2.CompressionSpec(model="m", task="sst2", target_density=0.3)
    longer = job_pb2.CompressionSpec(model="m", task="sst2", target_density=0.1, training={"preset": "LONG"})
    assert dense_spec(student) == dense_spec(same) != dense_spec(longer)


def test_a_dense_job_is_trained_and_measured_as_its_students() -> None:
    options = {"metric": "f1_macro", "class_weights": "balanced"}
    dense = dense_spec(job_pb2.CompressionSpec(model="m", task="sst2", target_density=0.1, **options))  # type: ignore[arg-type]
    assert (dense.metric, dense.class_weights) == ("f1_macro", "balanced")
    writes = dense_spec(job_pb2.CompressionSpec(model="m", task="xsum", source_prefix="s: ", length_penalty=0))
    assert writes.source_prefix == "s: "
    assert writes.HasField("length_penalty")


async def test_a_teacher_that_has_succeeded_is_used_at_once(school: School) -> None:
    first = await school.submit("a")
    await school.scheduler.step()
    await school.succeed(first.spec.teacher.job)
    second = await school.submit("b")
    assert second.spec.teacher.job == first.spec.teacher.job
    await school.servicer.DeleteJob(job_pb2.DeleteJobRequest(name=second.spec.teacher.job), None)
    await school.scheduler.step()
    _, claimed = await school.claim(second.name)
    assert claimed.teacher_manifest_sha256 == SHA, "its artifact is there, whatever became of the job"


async def test_a_teacher_that_was_lost_is_not_shared(school: School) -> None:
    first = await school.submit("a")
    await school.servicer.CancelJob(job_pb2.CancelJobRequest(name=first.spec.teacher.job), None)
    second = await school.submit("b")
    assert second.spec.teacher.job != first.spec.teacher.job
    assert (await school.submit("c")).spec.teacher.job == second.spec.teacher.job
    # The old one can be put back: it teaches its own student, and nobody else.
    await school.servicer.RetryJob(job_pb2.RetryJobRequest(name=first.spec.teacher.job), None)
    assert (await school.submit("d")).spec.teacher.job == second.spec.teacher.job


async def test_two_at_once_make_one_teacher(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a database with several writers does: the later commit breaks the index, and looks again."""
    write, others = school.db.write, iter(["b"])

    async def lose_first(work: Any, *args: Any, **kwargs: Any) -> Any:
        if (other := next(others, None)) is not None:
            await school.submit(other)
            raise IntegrityError("INSERT", {}, Exception("uq_jobs_project_teacher_key"))
        return await write(work, *args, **kwargs)

    monkeypatch.setattr(school.db, "write", lose_first)
    first = await school.submit("a")
    assert {job.spec.teacher.job for job in await school.all() if job.spec.HasField("teacher")} == {
        first.spec.teacher.job
    }
    assert len(await school.all()) == 3


async def test_the_schema_has_room_for_one_shared_teacher(school: School) -> None:
    one, other = await school.submit("a"), await school.submit("b", seed=1)

    def double(tx: Tx) -> None:
        ids = [job.spec.teacher.job.rpartition("/")[2] for job in (one, other)]
        digest = tx.conn.execute(select(JOBS.c.teacher_key).where(JOBS.c.job_id == ids[0])).scalar_one()
        tx.conn.execute(update(JOBS).where(JOBS.c.job_id == ids[1]).values(teacher_key=digest))

    with pytest.raises(IntegrityError):
        await school.db.write(double)


async def test_a_repeated_request_makes_no_second_teacher(school: School) -> None:
    first = await school.submit(request_id="once")
    again = await school.submit(request_id="once")
    assert (again.uid, len(await school.all())) == (first.uid, 2)


async def test_a_refused_student_leaves_no_teacher(school: School) -> None:
    await school.submit("a", teacher=None)
    with pytest.raises(ApiError) as caught:
        await school.submit("a")
    assert caught.value.reason == "ALREADY_EXISTS"
    assert len(await school.all()) == 1


async def test_validating_makes_no_teacher(school: School) -> None:
    checked = await school.submit(validate_only=True)
    assert checked.spec.teacher.train
    assert not await school.all()
    await school.submit("a", teacher=None)
    checked = await school.submit(teacher={"job": "a"}, validate_only=True)
    assert checked.spec.teacher.job == "projects/p/jobs/a"


@pytest.mark.parametrize("how", ["failed", "cancelled", "deleted"])
async def test_a_teacher_that_is_lost_fails_its_students(school: School, how: str) -> None:
    student = await school.submit()
    teacher = student.spec.teacher.job
    await school.scheduler.step()
    if how == "failed":
        await school.fail(teacher)
        words = f"the teacher's job {teacher} is FAILED (NAN_LOSS: went astray); retry that one first, then this one"
    else:
        fence, _ = await school.claim(teacher)
        await school.servicer.CancelJob(job_pb2.CancelJobRequest(name=teacher), None)
        await school.db.write(leases.stopped, fence, actor="worker")
        words = f"the teacher's job {teacher} is CANCELLED; retry that one first, then this one"
    if how == "deleted":
        await school.servicer.DeleteJob(job_pb2.DeleteJobRequest(name=teacher), None)
        words = f"the teacher's job {teacher} was deleted before its model was learned from"
    await school.scheduler.step()
    student = await school.job(student.name)
    assert job_pb2.Job.State.Name(student.state) == "FAILED"
    assert student.failure == job_pb2.Failure(reason="TEACHER_FAILED", message=words)
    assert await school.jobs.events("student") == ["JOB_CREATED", "FAIL"]


async def test_a_student_can_be_put_back_with_its_teacher(school: School) -> None:
    student = await school.submit()
    await school.scheduler.step()
    await school.fail(student.spec.teacher.job)
    await school.scheduler.step()
    for name in (student.spec.teacher.job, student.name):
        await school.servicer.RetryJob(job_pb2.RetryJobRequest(name=name), None)
    await school.scheduler.step()
    assert (await school.job(student.name)).state_reason == "WAITING_FOR_TEACHER"
    await school.succeed(student.spec.teacher.job)
    await school.scheduler.step()
    await school.scheduler.step()
    assert job_pb2.Job.State.Name((await school.job(student.name)).state) == "STARTING"


async def test_the_wait_for_a_teacher_is_no_wait_in_the_queue(school: School, clock: TestClock) -> None:
    student = await school.submit(policy={"max_queue_time": {"seconds": 60}})
    teacher = student.spec.teacher.job

    async def wait_long() -> None:
        await school.scheduler.step()
        clock.pass_seconds(3600)
        await school.scheduler.step()
        assert (await school.job(student.name)).state_reason == "WAITING_FOR_TEACHER"

    await wait_long()
    await school.fail(teacher)
    await school.scheduler.step()
    for name in (teacher, student.name):
        await school.servicer.RetryJob(job_pb2.RetryJobRequest(name=name), None)
    await wait_long()
    school.executor.room = Capacity((Node(0.5, 0, 1 << 30),))
    await school.succeed(teacher)
    await school.scheduler.step()
    assert (await school.job(student.name)).state_reason == "WAITING_FOR_CAPACITY"
    clock.pass_seconds(61)
    await school.scheduler.step()
    assert (await school.job(student.name)).state_reason == "MAX_QUEUE_TIME"


async def test_an_executor_that_is_away_does_not_hide_a_lost_teacher(
    school: School, executor: ScriptedExecutor
) -> None:
    student = await school.submit()
    await school.servicer.CancelJob(job_pb2.CancelJobRequest(name=student.spec.teacher.job), None)
    executor.away = True
    await school.scheduler.step()
    assert job_pb2.Job.State.Name((await school.job(student.name)).state) == "FAILED"


@pytest.mark.parametrize("given", ["a", "projects/p/jobs/a"])
async def test_a_job_teaches_under_its_id_and_its_name(school: School, given: str) -> None:
    await school.submit("a", teacher=None)
    student = await school.submit(teacher={"job": given, "temperature": 3})
    assert student.spec.teacher == job_pb2.Teacher(job="projects/p/jobs/a", temperature=3)
    assert len(await school.all()) == 2


async def test_jobs_that_cannot_teach(school: School) -> None:
    assert "must be a job that exists, got projects/p/jobs/a" in await school.refused(teacher={"job": "a"})
    for given in ("", "A!", "projects/other/jobs/a", "a/b"):
        refused = await school.refused(teacher={"job": given})
        assert f"must be the id of a job, or its name, projects/p/jobs/JOB, got {given!r}" in refused
    await school.submit("a", teacher=None)
    refused = await school.refused(task="rte", dataset=None, teacher={"job": "a"})
    assert "must be a job for the task rte, got projects/p/jobs/a, which is for text-classification" in refused
    await school.servicer.CancelJob(job_pb2.CancelJobRequest(name="projects/p/jobs/a"), None)
    assert "got projects/p/jobs/a, which is CANCELLED" in await school.refused(teacher={"job": "a"})


async def test_a_delta_teaches_while_its_base_may_be_read(school: School) -> None:
    school.allow("s3://models")
    await school.submit("delta", model="s3://models/bert", delta=True, teacher=None)
    await school.submit("whole", model="s3://models/bert", teacher=None)
    assert (await school.submit("a", teacher={"job": "delta"})).spec.model == "tiny-bert"
    school.allow()
    await school.submit("b", teacher={"job": "whole"})
    said = await school.refused(job_id="c", teacher={"job": "delta"})
    assert said.startswith(
        "must be a job whose base model can be read, got one whose artifact is a delta: the path "
        "must be in one of the allowed buckets (there are none), got 's3://models/"
    )
