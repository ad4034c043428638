"""WorkerService over a real channel: what it gives to workers, what it takes from them, what it refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from sqlalchemy import update
from tests.refusals import status_details
from tests.unit.service.beating import steady
from tests.unit.service.conftest import Jobs, TestClock
from tests.unit.service.serving import serving
from tests.waiting import PATIENCE

import mvprune
from mvprune.v1 import job_pb2, worker_pb2, worker_pb2_grpc
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.clock import SECOND
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.placement import Reserved
from mvprune_service.secret import attempt_secret
from mvprune_service.stores.base import BlobStore

KEY = b"k" * 32
SHA, OTHER = "ab" * 32, "cd" * 32
CHUNK = 256 << 10


class Workers:
    """A worker's calls on a real port."""

    def __init__(self, db: Database, jobs: Jobs, channel: grpc.aio.Channel) -> None:
        self._db, self._jobs = db, jobs
        self._stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        self.lease = worker_pb2.Lease()

    async def schedule(self) -> None:
        """A new attempt, whose worker this is from now on."""
        job = await self._jobs.get()
        room = Reserved(1, 0, 0)
        assert await self._db.write(leases.schedule, job.uid, room, executor="x", start_timeout_us=60 * SECOND)
        live = await self._jobs.live()
        self.lease = worker_pb2.Lease(attempt=str(live.name), fencing_token=live.attempt.fencing_token)

    async def call(self, method: str, request: Any) -> Any:
        request.lease.CopyFrom(self.lease)
        secret = attempt_secret(KEY, self.lease.attempt, self.lease.fencing_token)
        metadata = (("authorization", f"Bearer {secret}"),)
        return await getattr(self._stub, method)(request, metadata=metadata, timeout=PATIENCE)

    async def claim(self, **fields: Any) -> worker_pb2.ClaimAttemptResponse:
        request = worker_pb2.ClaimAttemptRequest(
            **{"runner_id": "r", "node": "n", "version": mvprune.__version__, **fields}
        )
        claimed: worker_pb2.ClaimAttemptResponse = await self.call("ClaimAttempt", request)
        return claimed

    async def commit(self, step: int, manifest_sha256: str = SHA) -> None:
        request = worker_pb2.CommitCheckpointRequest(step=step, manifest_sha256=manifest_sha256)
        await self.call("CommitCheckpoint", request)

    async def fail(self, reason: job_pb2.Failure.Reason, message: str = "m") -> None:
        failure = job_pb2.Failure(reason=reason, message=message)
        await self.call("CompleteAttempt", worker_pb2.CompleteAttemptRequest(failure=failure))

    async def killed(self, step: int) -> None:
        request = worker_pb2.CompleteAttemptRequest(
            failure={"reason": job_pb2.Failure.TRAINER_KILLED, "message": "killed."},
            killed={"signal": 9, "phase": "pruning", "step": step},
        )
        await self.call("CompleteAttempt", request)

    async def log(self, offset: int, data: bytes) -> int:
        answer = await self.call("AppendLogs", worker_pb2.AppendLogsRequest(offset=offset, data=data))
        return int(answer.next_offset)


@pytest.fixture
async def workers(db: Database, store: BlobStore, jobs: Jobs, clock: TestClock) -> AsyncIterator[Workers]:
    calls = Calls()
    servicer = WorkerServicer(db, KEY, LostChunks(db, store), pace=steady(db), clock=clock)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(servicer, calls)
    async with serving(calls) as channel:
        yield Workers(db, jobs, channel)


async def requeued(db: Database, jobs: Jobs, clock: TestClock, workers: Workers) -> None:
    clock.pass_seconds(3600)
    await workers.schedule()


async def test_a_later_attempt_gets_the_checkpoints_newest_first(
    db: Database, jobs: Jobs, clock: TestClock, workers: Workers
) -> None:
    policy = job_pb2.ExecutionPolicy()
    policy.checkpoint_interval.seconds = 30
    await jobs.create(max_attempts=3, policy=policy)
    await workers.schedule()
    claimed = await workers.claim()
    assert list(claimed.checkpoints) == []
    assert (claimed.checkpoint_interval.seconds, claimed.accumulation_factor) == (30, 1)
    uid = (await jobs.live()).attempt.uid
    for step in (10, 20, 30):
        await workers.commit(step, OTHER if step == 30 else SHA)
    await workers.commit(30, OTHER)  # the answer was lost: said again
    await workers.fail(job_pb2.Failure.PREEMPTED)
    await requeued(db, jobs, clock, workers)
    assert list((await workers.claim()).checkpoints) == [
        worker_pb2.Checkpoint(attempt_uid=uid, step=30, manifest_sha256=OTHER),
        worker_pb2.Checkpoint(attempt_uid=uid, step=20, manifest_sha256=SHA),
    ]


@pytest.mark.parametrize(
    "policy",
    [
        {"gates": [{"metric": "bytes", "max": 1}, {"metric": "latency_ratio", "min": 2}]},
        {"measure_latency": True},
    ],
)
async def test_latency_is_measured_if_a_gate_or_the_policy_asks_for_it(
    jobs: Jobs, workers: Workers, policy: dict[str, Any]
) -> None:
    await jobs.create(policy=job_pb2.ExecutionPolicy(**policy))
    await workers.schedule()
    assert (await workers.claim()).measure_latency


async def test_latency_is_not_measured_for_nothing(jobs: Jobs, workers: Workers) -> None:
    await jobs.create(policy=job_pb2.ExecutionPolicy(gates=[job_pb2.Gate(metric="bytes", max=1)]))
    await workers.schedule()
    assert not (await workers.claim()).measure_latency


async def test_the_interval_has_a_default(jobs: Jobs, workers: Workers) -> None:
    await jobs.create()
    await workers.schedule()
    assert (await workers.claim()).checkpoint_interval.seconds == 600


async def test_out_of_memory_doubles_the_passes(db: Database, jobs: Jobs, clock: TestClock, workers: Workers) -> None:
    await jobs.create(max_attempts=3)
    await workers.schedule()
    await workers.claim()
    await workers.fail(job_pb2.Failure.OUT_OF_MEMORY)
    await requeued(db, jobs, clock, workers)
    assert (await workers.claim()).accumulation_factor == 2


@pytest.mark.parametrize(
    ("batch", "passes", "factors"), [(8, 2, [1, 2, 4]), (9, 3, [1, 2]), (0, 0, [1, 2, 4, 8, 16, 32, 64])]
)
async def test_a_batch_is_cut_no_further_than_into_examples(
    db: Database, jobs: Jobs, clock: TestClock, workers: Workers, batch: int, passes: int, factors: list[int]
) -> None:
    training = job_pb2.Training(batch_size=batch or None, accumulation_steps=passes or None)
    uid = await jobs.create(max_attempts=100)
    spec = job_pb2.CompressionSpec(model="m", task="sst2", training=training).SerializeToString()
    await db.write(lambda tx: tx.conn.execute(update(JOBS).where(JOBS.c.uid == uid).values(spec=spec)))
    tried = []
    while (await jobs.get()).state == "QUEUED":
        await requeued(db, jobs, clock, workers)
        tried.append((await workers.claim()).accumulation_factor)
        await workers.fail(job_pb2.Failure.OUT_OF_MEMORY)
    assert tried == factors
    assert (await jobs.get()).failure_reason == "OUT_OF_MEMORY"


async def test_a_stale_worker_commits_nothing(db: Database, jobs: Jobs, clock: TestClock, workers: Workers) -> None:
    uid = await jobs.create()
    await workers.schedule()
    await workers.claim()
    stale = worker_pb2.Lease()
    stale.CopyFrom(workers.lease)
    await workers.fail(job_pb2.Failure.PREEMPTED)
    await requeued(db, jobs, clock, workers)
    await workers.claim()
    workers.lease = stale
    assert await refused(workers.commit(10)) == (grpc.StatusCode.ABORTED, [])
    assert await db.read(leases.checkpoints_of, uid) == []


def _claim(**fields: Any) -> Any:
    return "ClaimAttempt", worker_pb2.ClaimAttemptRequest(**{"runner_id": "r", **fields})


def _beat(**progress: Any) -> Any:
    return "Heartbeat", worker_pb2.HeartbeatRequest(progress=job_pb2.Progress(**progress))


def _metrics(*points: dict[str, Any]) -> Any:
    return "ReportMetrics", worker_pb2.ReportMetricsRequest(points=[job_pb2.MetricPoint(**point) for point in points])


def _commit(step: int, sha256: str) -> Any:
    return "CommitCheckpoint", worker_pb2.CommitCheckpointRequest(step=step, manifest_sha256=sha256)


REFUSED: list[tuple[Any, str]] = [
    (_claim(runner_id=""), "runner_id"),
    (_claim(runner_id="r" * 65), "runner_id"),
    (_claim(node="n" * 256), "node"),
    (_claim(node="a\0b"), "node"),
    (_beat(phase="p" * 65), "progress.phase"),
    (_beat(phase="\x1b[31m"), "progress.phase"),
    (_beat(step=-1), "progress.step"),
    (_beat(total_steps=10**13), "progress.total_steps"),
    (("AppendLogs", worker_pb2.AppendLogsRequest(offset=-1, data=b"x")), "offset"),
    (("AppendLogs", worker_pb2.AppendLogsRequest(data=bytes(CHUNK + 1))), "data"),
    (_metrics({"metric": "", "step": 1}), "points[0].metric"),
    (_metrics({"metric": "a"}, {"metric": "m" * 101}), "points[1].metric"),
    (_metrics({"metric": "a", "step": -1}), "points[0].step"),
    (_metrics({"metric": "a", "time": {"seconds": 1 << 60}}), "points[0].time"),
    (_metrics(*({"metric": "a", "step": step} for step in range(1001))), "points"),
    (_commit(-1, SHA), "step"),
    (_commit(10**12 + 1, SHA), "step"),
    (_commit(1, SHA.upper()), "manifest_sha256"),
    (_commit(1, SHA + "\n"), "manifest_sha256"),
    (_commit(1, "../../x"), "manifest_sha256"),
    (("CompleteAttempt", worker_pb2.CompleteAttemptRequest(manifest_sha256="x")), "manifest_sha256"),
    (("CompleteAttempt", worker_pb2.CompleteAttemptRequest(failure={"reason": 99})), "failure.reason"),
    (("CompleteAttempt", worker_pb2.CompleteAttemptRequest(failure={})), "failure.reason"),
    (("CompleteAttempt", worker_pb2.CompleteAttemptRequest()), "outcome"),
    (("CompleteAttempt", worker_pb2.CompleteAttemptRequest(failure={"reason": 21}, killed={})), "killed.signal"),
    (
        ("CompleteAttempt", worker_pb2.CompleteAttemptRequest(failure={"reason": 21}, killed={"signal": 65})),
        "killed.signal",
    ),
    (
        (
            "CompleteAttempt",
            worker_pb2.CompleteAttemptRequest(failure={"reason": 21}, killed={"signal": 9, "step": -1}),
        ),
        "killed.step",
    ),
]


async def test_what_workers_may_not_send(jobs: Jobs, workers: Workers) -> None:
    await jobs.create()
    await workers.schedule()
    await workers.claim()
    for call, field in REFUSED:
        assert await refused(workers.call(*call)) == (grpc.StatusCode.INVALID_ARGUMENT, [field]), call


async def test_the_largest_that_workers_may_send(db: Database, jobs: Jobs, workers: Workers) -> None:
    uid = await jobs.create()
    await workers.schedule()
    await workers.claim(runner_id="r" * 64, node="n" * 255)
    await workers.call(*_beat(phase="p" * 64, step=10**12, total_steps=10**12))
    await workers.call(*_metrics(*({"metric": "m" * 100, "step": 10**12 - n, "value": 1.0} for n in range(1000))))
    await workers.call(*_metrics({"metric": "m", "value": float("nan")}))  # nothing to show, nothing to refuse
    await workers.commit(10**12)
    assert await workers.log(0, bytes(CHUNK)) == CHUNK
    assert len(await db.read(records.metrics_of, uid, 0, 5000)) == 1000
    await workers.fail(job_pb2.Failure.NAN_LOSS, "x\0y\x1b" + "z" * 5000)
    message = (await jobs.get()).failure_message
    assert message.startswith("x y z")
    assert len(message) == 2000


async def test_a_log_that_grows_too_fast_is_told_to_wait(jobs: Jobs, workers: Workers, clock: TestClock) -> None:
    await jobs.create()
    await workers.schedule()
    await workers.claim()
    offset = 0
    for _ in range(32):  # 8 MiB at once
        offset = await workers.log(offset, bytes(CHUNK))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await workers.log(offset, bytes(CHUNK))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    wait = details(caught.value, error_details_pb2.RetryInfo).retry_delay.ToTimedelta().total_seconds()
    assert 0.2 < wait <= 0.26, "256 KiB at 1 MiB a second"
    clock.pass_seconds(wait)
    assert await workers.log(offset, bytes(CHUNK)) == offset + CHUNK
    code, _ = await refused(workers.log(offset + CHUNK, bytes(CHUNK)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def refused(call: Any) -> tuple[grpc.StatusCode, list[str]]:
    """The status of a call, and the fields that are wrong."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    bad = details(caught.value, error_details_pb2.BadRequest)
    return caught.value.code(), [violation.field for violation in bad.field_violations]


def details(error: grpc.aio.AioRpcError, kind: Callable[[], Any]) -> Any:
    """A detail of a status; an empty one where it is missing."""
    found = kind()
    for detail in status_details(error):
        detail.Unpack(found)
    return found


async def test_how_a_trainer_was_killed_is_kept_for_the_next_attempts(workers: Workers, jobs: Jobs) -> None:
    await jobs.create(max_attempts=9)
    for step in (8, 3, 3, 3):
        assert (await jobs.get()).state == "QUEUED"
        await workers.schedule()
        await workers.claim()
        await workers.killed(step)
    job = await jobs.get()
    assert (job.state, job.failure_reason) == ("FAILED", "TRAINER_KILLED")
    assert job.failure_message.startswith("killed. 3 attempts ended so at this step")


async def test_a_worker_of_another_minor_version_ends_its_attempt(
    db: Database, jobs: Jobs, clock: TestClock, workers: Workers
) -> None:
    await jobs.create(max_attempts=3)
    await workers.schedule()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await workers.claim(version="9.7.1")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    text = str(caught.value.details())
    assert text.startswith("mvprune of the worker on n must have version ")
    assert f"as the server ({mvprune.__version__}), got 9.7.1; install mvprune=={mvprune.__version__} there" in text
    job = await jobs.get()
    assert (job.state, job.state_reason, job.attempts_left) == ("QUEUED", "WRONG_VERSION", 2)
    for _ in range(2):
        await requeued(db, jobs, clock, workers)
        with pytest.raises(grpc.aio.AioRpcError):
            await workers.claim(version="")
    job = await jobs.get()
    assert (job.state, job.failure_reason) == ("FAILED", "WRONG_VERSION")
    assert "got none" in job.failure_message


async def test_a_wrong_version_takes_nothing_from_the_worker_that_has_the_lease(jobs: Jobs, workers: Workers) -> None:
    await jobs.create()
    await workers.schedule()
    await workers.claim()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await workers.claim(runner_id="another", version="9.7.1")
    assert caught.value.code() is grpc.StatusCode.ABORTED
    assert (await jobs.get()).state == "RUNNING"
