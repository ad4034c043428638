"""JobService without a network: what it accepts, refuses and remembers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from sqlalchemy import insert
from tests.unit.service.conftest import Call, Jobs, ScriptedExecutor
from tests.waiting import PATIENCE

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.checks.specs import Checker
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.submissions import Submissions, capacity_of
from mvprune_service.changes import Changes
from mvprune_service.clock import SECOND
from mvprune_service.db import leases
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.tables.server import PROJECTS
from mvprune_service.domain.failures import RULES, FailureReason, Retry
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure
from mvprune_service.executors.base import Capacity, Node


class Api:
    """Calls as a client makes them."""

    def __init__(self, db: Database, executor: ScriptedExecutor) -> None:
        changes = Changes()
        submissions = Submissions(
            db, Roots(buckets=("s3://ours",)), capacity_of(executor), quota=QueueQuota(3), retention_seconds=86_400
        )
        self.servicer = JobServicer(db, changes, Feeds(db, changes), submissions, None)  # type: ignore[arg-type]

    async def create(
        self, request_id: str = "", job_id: str = "a", validate_only: bool = False, **job: Any
    ) -> job_pb2.Job:
        full = {"spec": {"model": "bert-base-uncased", "task": "sst2", "movement": {}, "targetDensity": 0.1}} | job
        request = {
            "parent": "projects/p",
            "jobId": job_id,
            "requestId": request_id,
            "job": full,
            "validateOnly": validate_only,
        }
        return await self.servicer.CreateJob(ParseDict(request, job_pb2.CreateJobRequest()), Call())  # type: ignore[arg-type]

    async def call(self, method: str, **request: Any) -> Any:
        kind = getattr(job_pb2, f"{method}Request")
        about = {} if "parent" in request else {"name": "projects/p/jobs/a"}
        return await getattr(self.servicer, method)(ParseDict(about | request, kind()), None)


@pytest.fixture
def api(db: Database, executor: ScriptedExecutor) -> Api:
    return Api(db, executor)


async def test_models_and_data_may_lie_in_an_allowed_bucket(api: Api) -> None:
    data = {"train": "s3://ours/train.csv", "validation": "s3://ours/dev.csv"}
    spec = {"model": "s3://ours/bert", "task": "sst2", "movement": {}, "targetDensity": 0.1}
    job = await api.create(spec=spec | {"dataset": data, "teacher": {"model": "s3://ours/teacher"}})
    assert not job.HasField("model_size"), "nobody has looked"
    elsewhere = {"model": "s3://theirs/bert", "teacher": {"model": "s3://ours/../x"}}
    with pytest.raises(ApiError) as refused:
        await api.create(spec=spec | elsewhere | {"dataset": data | {"train": "s3://theirs/train.csv"}})
    assert {violation.field: "(s3://ours)" in violation.description for violation in refused.value.violations} == {
        "job.spec.model": True,
        "job.spec.dataset.train": True,
        "job.spec.teacher.model": False,
    }


async def test_questions_need_room_beside_their_context(api: Api) -> None:
    spec = {"model": "bert-base-uncased", "task": "squad", "movement": {}, "targetDensity": 0.1}
    with pytest.raises(ApiError) as refused:
        await api.create(spec=spec | {"training": {"maxLength": 23}})
    assert [
        (found.field, "at least 24 for question-answering" in found.description) for found in refused.value.violations
    ] == [("job.spec.training.max_length", True)]
    assert (await api.create(spec=spec | {"training": {"maxLength": 24}})).spec.training.max_length == 24


async def test_a_policy_is_stored_with_its_defaults(api: Api) -> None:
    job = await api.create(policy={"priority": 7, "maxRuntime": "3600s"})
    assert job.policy == ParseDict(
        {
            "priority": 7,
            "maxRuntime": "3600s",
            "maxAttempts": 3,
            "startTimeout": "900s",
            "checkpointInterval": "600s",
            "retention": "86400s",
        },
        job_pb2.ExecutionPolicy(),
    )
    assert (job.creator, job.state) == ("local", job_pb2.Job.QUEUED)
    assert not job.HasField("expire_time")
    cancelled = await api.call("CancelJob")
    assert cancelled.expire_time.ToMicroseconds() == cancelled.end_time.ToMicroseconds() + 86_400 * SECOND
    assert not (await api.call("RetryJob")).HasField("expire_time")


@pytest.mark.parametrize(
    ("policy", "field", "allowed"),
    [
        ({"priority": 101}, "priority", "from -100 to 100, got "),
        ({"priority": -101}, "priority", "from -100 to 100, got "),
        ({"maxRuntime": "0s"}, "max_runtime", "from 1 s to 365 days, got "),
        ({"maxRuntime": "-5s"}, "max_runtime", "from 1 s to 365 days, got "),
        ({"maxQueueTime": "31536001s"}, "max_queue_time", "from 1 s to 365 days, got "),
        ({"retention": "59.9s"}, "retention", "from 1 min to 3,650 days, got '59.9 s'"),
        ({"checkpointInterval": "0.5s"}, "checkpoint_interval", "from 1 s to 1 day, got "),
        ({"startTimeout": "86401s"}, "start_timeout", "from 1 s to 1 day, got "),
        ({"maxAttempts": 101}, "max_attempts", "from 1 to 100, got 101"),
        ({"resources": {"cpus": 0.00001}}, "resources.cpus", "from 0.0001 to 4,096"),
        ({"resources": {"memoryBytes": 8}}, "resources.memory_bytes", "from 64 MiB to 1 PiB, got 8"),
        ({"resources": {"memoryBytes": (64 << 20) - 1}}, "resources.memory_bytes", "got 67108863"),
        ({"resources": {"workers": 0}}, "resources.workers", "from 1 to 64, got 0"),
        (
            {"resources": {"workers": 64}},
            "resources.workers",
            "an example of a batch, 32 at most, got '64 processes'; ",
        ),
    ],
)
async def test_bad_policies(api: Api, policy: Any, field: str, allowed: str) -> None:
    with pytest.raises(ApiError) as refused:
        await api.create(policy=policy)
    (violation,) = refused.value.violations
    assert violation.field == f"job.policy.{field}"
    assert allowed in violation.description


@pytest.mark.parametrize("gpus", [0, 0.0001, 0.3, 1, 2, 8, -1, 0.00001, 1.5])
async def test_gpus_are_whole_or_a_share_of_one(api: Api, executor: ScriptedExecutor, gpus: float) -> None:
    executor.room = Capacity((Node(4, 8, 8 << 30),))
    policy = {"resources": {"gpus": gpus}}
    if gpus in (-1, 0.00001, 1.5):
        rule = "from 0 to 1,024" if gpus < 0 else "0, a share of one from 0.0001, or a whole number"
        with pytest.raises(ApiError, match=f"resources.gpus: must be {rule}, got {float(gpus)}$"):
            await api.create(policy=policy)
    else:
        assert (await api.create(policy=policy)).policy.resources.gpus == gpus


async def test_workers_do_not_share_a_gpu(api: Api, executor: ScriptedExecutor) -> None:
    executor.room = Capacity((Node(4, 8, 8 << 30),))
    with pytest.raises(
        ApiError, match=r"gpus: must be 0 or a whole number with 2 workers, got 0\.5; each of them needs"
    ):
        await api.create(policy={"resources": {"gpus": 0.5, "workers": 2}})


@pytest.mark.parametrize("method", ["CancelJob", "RetryJob", "DeleteJob"])
async def test_a_write_with_an_old_etag_changes_nothing(api: Api, jobs: Jobs, method: str) -> None:
    first = await api.create()
    if method != "CancelJob":
        await api.call("CancelJob")
    before = await jobs.get()
    with pytest.raises(ApiError) as refused:
        await api.call(method, etag=first.etag + "0")
    assert (refused.value.code, refused.value.reason) == (grpc.StatusCode.ABORTED, "ETAG_MISMATCH")
    assert await jobs.get() == before
    await api.call(method, etag=str(before.version))


async def test_cancel_is_answered_alike_however_often(api: Api) -> None:
    await api.create()
    first = await api.call("CancelJob", reason="no need")
    assert await api.call("CancelJob") == first
    await api.call("RetryJob")
    with pytest.raises(ApiError, match="is QUEUED: retry does not apply"):
        await api.call("RetryJob")


async def test_a_request_that_is_repeated_returns_its_job_though_it_would_be_refused_now(
    api: Api, executor: ScriptedExecutor
) -> None:
    policy = {"resources": {"cpus": 2.0}}
    first = await api.create("r1", policy=policy)
    executor.room = Capacity((Node(1, 0, 1),))
    first.ClearField("estimate")  # the job is no longer checked
    assert await api.create("r1", policy=policy) == first
    with pytest.raises(ApiError, match="cpus"):
        await api.create("r2", "b", policy=policy)
    for other in ({"job_id": "b"}, {"display_name": "x"}):
        with pytest.raises(ApiError, match="'r1' was used for another job"):
            await api.create("r1", **other)


async def test_a_check_answers_as_the_request_would(api: Api, jobs: Jobs) -> None:
    made = await api.create("r1")
    assert await api.create("r1", validate_only=True) == made
    with pytest.raises(ApiError, match="'r1' was used for another job"):
        await api.create("r1", validate_only=True, display_name="x")
    with pytest.raises(ApiError, match="a job projects/p/jobs/a exists already"):
        await api.create("r2", validate_only=True)
    assert (await api.create("r2", "b", validate_only=True)).name == "projects/p/jobs/b"
    assert await jobs.get("b") is None


async def test_the_answer_has_the_phases_and_says_that_no_time_is_known_yet(api: Api) -> None:
    """With and without storing; a job that is read later has none."""
    spec = {"model": "bert-base-uncased", "task": "sst2", "movement": {}, "target_density": 0.1}
    for validate_only in (True, False):
        answer = await api.create("r", spec=spec | {"training": {"max_steps": 50}}, validate_only=validate_only)
        phases = [(phase.name, phase.steps) for phase in answer.estimate.phases]
        assert phases == [
            *(("dense", 50), ("evaluating", 0), ("teaching", 0)),
            *(("pruning", 50), ("evaluating", 0), ("uploading", 0)),
        ]
        assert not answer.estimate.HasField("runtime")
        assert answer.estimate.text.startswith("not known yet: no job")
    assert not (await api.call("GetJob")).HasField("estimate")


async def test_a_job_without_a_density_has_that_of_its_pattern(api: Api) -> None:
    spec = {"model": "bert-base-uncased", "task": "sst2", "movement": {}, "pattern": "1:4"}
    for validate_only in (True, False):
        answer = await api.create("r", spec=spec, validate_only=validate_only)
        assert answer.spec.target_density == 0.25
        assert "the density is 0.25, that of the pattern 1:4" in answer.notes
    assert (await api.call("GetJob")).spec.target_density == 0.25
    again = await api.create("r", spec=spec)
    assert again.name == answer.name
    with pytest.raises(ApiError) as caught:
        await api.create(job_id="b", spec=spec | {"pattern": "4:1"})
    assert [violation.field for violation in caught.value.violations] == ["job.spec.pattern"]


async def test_what_no_one_node_has_is_refused(api: Api, executor: ScriptedExecutor) -> None:
    policy = {"resources": {"gpus": 1.0, "cpus": 8.0}}
    executor.room = Capacity((Node(4, 1, 8 << 30), Node(64, 0, 8 << 30)))
    with pytest.raises(ApiError, match=r"resources: must be what one node has, got more; a worker runs on one node$"):
        await api.create(policy=policy)
    executor.room = Capacity(())  # not known yet
    assert (await api.create(policy=policy)).state_reason == ""


async def test_the_workers_of_a_job_are_on_one_node_or_share_several(api: Api, executor: ScriptedExecutor) -> None:
    executor.room = Capacity((Node(4, 2, 8 << 30), Node(4, 2, 8 << 30)))
    answer = await api.create(policy={"resources": {"gpus": 0, "cpus": 2, "workers": 2}}, validate_only=True)
    assert "2 processes train together, on CPUs" in answer.notes
    answer = await api.create(policy={"resources": {"gpus": 2}}, validate_only=True)
    assert "2 processes train together, one on each GPU" in answer.notes
    assert not [note for note in answer.notes if "several nodes" in note]
    answer = await api.create(policy={"resources": {"gpus": 0, "workers": 9}}, validate_only=True)
    assert "9 processes share 4 CPUs, as no node has more; fewer workers are as fast" in answer.notes
    answer = await api.create(policy={"resources": {"gpus": 0, "workers": 4}}, validate_only=True)
    assert not [note for note in answer.notes if "share" in note]
    answer = await api.create(policy={"resources": {"gpus": 0, "cpus": 2, "workers": 3}}, validate_only=True)
    assert "no node has what 3 workers need together: they share several nodes" in answer.notes
    for workers, cpus, expected in (
        (2, 5, r"cpus: must be at most 4, the largest node's, got 5\.0"),
        (5, 2, r"cpus: must be at most 8, that of all nodes, for 5 workers together, got 10\.0"),
        (2, 3, None),
        (3, 2.5, "must be what one node has, got more; a worker runs on one node"),
    ):
        policy = {"resources": {"gpus": 0, "cpus": cpus, "workers": workers}}
        if expected is None:
            await api.create(policy=policy, validate_only=True)
            continue
        with pytest.raises(ApiError, match=expected):
            await api.create(policy=policy)


async def test_what_no_node_has_is_refused_in_full_numbers(api: Api) -> None:
    with pytest.raises(
        ApiError, match="memory_bytes: must be at most 8,589,934,592, the largest node's, got 1099511627776"
    ):
        await api.create(policy={"resources": {"memoryBytes": 1 << 40}})


async def test_an_id_that_the_server_chooses_is_a_free_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = iter(("taken", "taken", "free"))
    monkeypatch.setattr(ids, "new_job_id", lambda task: next(chosen))
    names = [(await api.create(job_id="")).name for _ in range(2)]
    assert names == ["projects/p/jobs/taken", "projects/p/jobs/free"]


async def test_requests_that_race_make_one_job(api: Api, db: Database, jobs: Jobs) -> None:
    made = await asyncio.gather(*(api.create("r1") for _ in range(8)))
    assert len({job.uid for job in made}) == 1
    taken = await asyncio.gather(*(api.create(f"r{n}", "b") for n in range(2, 6)), return_exceptions=True)
    assert [error.reason for error in taken if isinstance(error, ApiError)] == ["ALREADY_EXISTS"] * 3


async def test_a_full_queue_takes_no_more_until_there_is_room(api: Api, db: Database) -> None:
    for job_id in "abc":
        await api.create(job_id=job_id)
    with pytest.raises(ApiError) as refused:
        await api.create(job_id="d")
    assert (refused.value.code, refused.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    assert "jobs of projects/p in the queue must be at most 3; " in refused.value.message
    await api.call("CancelJob")
    await api.create(job_id="d")

    def own(tx: Tx) -> None:
        tx.conn.execute(insert(PROJECTS).values(project="p", max_queued_jobs=4))

    await db.write(own)
    await api.create(job_id="e")
    with pytest.raises(ApiError, match="jobs of projects/p in the queue must be at most 4"):
        await api.create(job_id="f")


async def test_a_retry_needs_room_in_the_queue_too(api: Api) -> None:
    await api.create()
    await api.call("CancelJob")
    for job_id in "bcd":
        await api.create(job_id=job_id)
    with pytest.raises(ApiError) as refused:
        await api.call("RetryJob")
    assert (refused.value.code, refused.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUOTA_EXCEEDED")
    with pytest.raises(ApiError, match="is QUEUED: retry does not apply"):
        await api.call("RetryJob", name="projects/p/jobs/b")
    await api.call("CancelJob", name="projects/p/jobs/b")
    assert (await api.call("RetryJob")).state == job_pb2.Job.QUEUED


@pytest.mark.parametrize(("grace", "given"), [("-0.500s", "-0.5"), ("3600.500s", "3600.5"), ("-1s", "-1")])
async def test_a_grace_that_is_none(api: Api, grace: str, given: str) -> None:
    await api.create()
    with pytest.raises(ApiError, match=rf"grace: must be 0 s to 1 h, got {given} s"):
        await api.call("CancelJob", grace=grace)


async def test_a_grace_may_be_a_part_of_a_second(api: Api, jobs: Jobs) -> None:
    await api.create()
    await api.call("CancelJob", grace="0.500s")
    assert (await jobs.get()).cancel_grace_us == SECOND // 2


async def test_a_job_that_failed_says_why_and_may_be_retried_from_scratch(api: Api, db: Database, jobs: Jobs) -> None:
    uid = (await api.create(policy={"maxAttempts": 1})).uid
    reserved = Reserved(1, 0, 0)
    await db.write(leases.schedule, uid, reserved, executor="x", start_timeout_us=SECOND)
    live = await jobs.live()
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=SECOND)
    await db.write(leases.commit_checkpoint, fence, step=5, manifest_sha256="0" * 64)
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST, "gone", lost=True), actor="watchdog")
    failed = await api.call("GetJob")
    assert (failed.state, failed.failure.reason) == (job_pb2.Job.FAILED, job_pb2.Failure.WORKER_LOST)
    again = await api.call("RetryJob", fromScratch=True)
    assert (again.state, again.HasField("failure"), again.attempt) == (job_pb2.Job.QUEUED, False, 1)
    assert await db.read(leases.checkpoints_of, uid) == []


@pytest.mark.parametrize("reason", FailureReason)
async def test_a_retry_says_what_has_to_change(api: Api, db: Database, jobs: Jobs, reason: FailureReason) -> None:
    uid = (await api.create(policy={"maxAttempts": 1})).uid
    await db.write(leases.schedule, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=SECOND)
    live = await jobs.live()
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=SECOND)
    await db.write(leases.fail_attempt, fence, Failure(reason, "so it is"), actor="worker")
    again, change = await api.call("RetryJob"), RULES[reason].before_retry
    assert again.state == job_pb2.Job.QUEUED
    note = f"the job failed with {reason}, and will again unless something has changed: {change}"
    assert [*again.notes] == ([note] if change else [])
    assert not (await api.call("GetJob")).notes
    assert RULES[reason].retry is Retry.NEVER or not change


async def test_large_files_leave_threads_to_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    started, go_on = threading.Semaphore(0), threading.Event()

    def check(checker: Checker) -> None:
        started.release()
        go_on.wait(PATIENCE)

    monkeypatch.setattr(Checker, "check", check)
    spec = {"model": "s3://ours/bert", "task": "sst2", "movement": {}, "targetDensity": 0.1}
    coming = [asyncio.create_task(api.create(job_id=f"j{n}", validate_only=True, spec=spec)) for n in range(8)]
    for _ in range(4):
        await asyncio.to_thread(started.acquire)
    assert not started.acquire(blocking=False)
    go_on.set()
    assert len(await asyncio.gather(*coming)) == 8


async def test_submits_wait_together_for_an_executor_that_does_not_answer(
    api: Api, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = threading.Semaphore(0), threading.Event()

    def capacity() -> Capacity:
        asked.release()
        go_on.wait(PATIENCE)
        return executor.room

    monkeypatch.setattr(executor, "capacity", capacity)
    policy = {"resources": {"cpus": 100}}
    coming = [asyncio.create_task(api.create(job_id=f"j{n}", policy=policy)) for n in range(40)]
    await asyncio.to_thread(asked.acquire)
    await asyncio.wait_for(asyncio.to_thread(int), 20)  # threads are left to others
    go_on.set()
    for refused in await asyncio.gather(*coming, return_exceptions=True):
        assert isinstance(refused, ApiError)
        assert [violation.field for violation in refused.violations] == ["job.policy.resources.cpus"]
    assert not asked.acquire(blocking=False)
