"""A service's parts that sweeps meet, with workers that do their jobs at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from google.protobuf.json_format import ParseDict

import mvprune
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, sweep_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.submissions import capacity_of
from mvprune_service.api.sweep_creation import SweepCreation
from mvprune_service.api.sweeps import SweepServicer
from mvprune_service.changes import Changes
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.control.sweep_controller import SweepController
from mvprune_service.db import leases, lifecycle, records, sweep_records, teachers
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.tables.jobs import JobRow
from mvprune_service.db.tables.sweeps import ShownPointRow
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure
from mvprune_service.domain.sweeping import ENDED
from mvprune_service.executors.base import Executor
from mvprune_service.ids import AttemptName, JobName, SweepName

NAME = "projects/p/sweeps/s"
Quality = Callable[[job_pb2.CompressionSpec], float]  # of the model that a job makes

BASE: dict[str, Any] = {"model": "bert-base-uncased", "task": "sst2", "movement": {}}
_DENSE = 0.9


class Gym:
    """Sweeps over one database.

    Args:
        quality: the accuracy of a job's model; None: 0.9 for every one.
        queue: jobs of the project that may be in the queue.
    """

    def __init__(
        self,
        db: Database,
        executor: Executor,
        quality: Quality | None = None,
        *,
        queue: int = 10_000,
        roots: Roots | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.db = db
        self.quality = quality or (lambda spec: _DENSE)
        self.gpus = 0.0  # of the jobs that start from now on
        self.changes = Changes()
        self.creation = SweepCreation(db, roots or Roots(), capacity_of(executor), max_points=1_000, clock=clock)
        self.servicer = SweepServicer(db, self.changes, self.creation)
        self.controller = SweepController(db, QueueQuota(queue))

    async def create(self, *, sweep_id: str = "s", **given: Any) -> sweep_pb2.Sweep:
        """Creates a sweep of the JSON form of SweepSpec and SweepPolicy."""
        call = {name: given.pop(name) for name in ("request_id", "validate_only") if name in given}
        policy = given.pop("policy", {})
        labels = given.pop("labels", {})
        spec = ParseDict({"base": BASE} | given, sweep_pb2.SweepSpec())
        sweep = sweep_pb2.Sweep(spec=spec, policy=ParseDict(policy, sweep_pb2.SweepPolicy()), labels=labels)
        request = sweep_pb2.CreateSweepRequest(parent="projects/p", sweep_id=sweep_id, sweep=sweep, **call)
        return await self.servicer.CreateSweep(request, None)

    async def refused(self, **given: Any) -> dict[str, str]:
        """What is said about each field of a sweep that is refused."""
        try:
            await self.create(**given)
        except ApiError as error:
            return dict(error.violations)
        raise AssertionError("it was accepted")

    async def get(self) -> sweep_pb2.Sweep:
        return await self.servicer.GetSweep(sweep_pb2.GetSweepRequest(name=NAME), None)

    async def state(self) -> str:
        return sweep_pb2.Sweep.State.Name((await self.get()).state)

    async def points(self) -> list[sweep_pb2.SweepPoint]:
        request = sweep_pb2.ListSweepPointsRequest(parent=NAME, page_size=500)
        found: list[sweep_pb2.SweepPoint] = []
        while True:
            page = await self.servicer.ListSweepPoints(request, None)
            found += page.points
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def states(self) -> list[str]:
        """The states of the points."""
        return [sweep_pb2.SweepPoint.State.Name(point.state) for point in await self.points()]

    async def job(self, job_id: str) -> JobRow:
        found = await self.db.read(records.job_named, JobName("p", job_id))
        assert found is not None
        return found

    async def succeed(self, job_id: str, metrics: dict[str, float] | None = None) -> None:
        """Runs a queued job to its end."""
        await self.finish(job_id, await self.start(job_id), metrics)

    async def finish(self, job_id: str, fence: Fence, metrics: dict[str, float] | None = None) -> None:
        """Ends a job that runs, with an artifact."""
        job = await self.job(job_id)
        spec = job_pb2.CompressionSpec.FromString(job.spec)
        accuracy = self.quality(spec)
        dense = {} if spec.target_density >= 1 else {"dense/accuracy": _DENSE, "delta/accuracy": accuracy - _DENSE}
        manifest = manifest_of(spec, {"eval/accuracy": accuracy} | dense | (metrics or {}))
        sha256 = f"{abs(hash(job.spec)):064x}"[-64:]

        def work(tx: Tx) -> None:
            leases.offer(tx, fence, sha256, actor="worker")
            live = lifecycle.lock_job(tx, job.uid)
            assert live is not None
            attempt = lifecycle.current_attempt(tx, live)
            assert attempt is not None
            leases.publish(tx, job.uid, attempt.uid, manifest, 100)

        await self.db.write(work)

    async def fail(self, job_id: str, reason: FailureReason = FailureReason.NAN_LOSS) -> None:
        """Runs a queued job until it fails for good."""
        await self.end(await self.start(job_id), reason)

    async def end(self, fence: Fence, reason: FailureReason) -> None:
        """Ends a job that runs, with a failure."""
        await self.db.write(leases.fail_attempt, fence, Failure(reason, "it went astray"), actor="worker")

    async def stopped(self, fence: Fence) -> None:
        """Its worker has ended, after it was cancelled."""
        await self.db.write(leases.stopped, fence, actor="worker")

    async def cancel_job(self, job_id: str) -> None:
        """A user cancels a job of the sweep."""

        def work(tx: Tx) -> None:
            job = lifecycle.lock_job_named(tx, JobName("p", job_id))
            assert job is not None
            lifecycle.cancel(tx, job, reason="", grace_us=0, actor="user")

        await self.db.write(work)

    async def points_rows(self) -> list[ShownPointRow]:
        """The rows of the first points."""
        sweep = await self.db.read(sweep_records.sweep_named, SweepName("p", "s"))
        assert sweep is not None
        return await self.db.read(sweep_records.page_of_points, sweep.uid, 0, 500)

    async def start(self, job_id: str) -> Fence:
        """A worker claims a queued job."""
        job = await self.job(job_id)
        resources = Reserved(cpus=1.0, gpus=self.gpus, memory_bytes=0)

        def work(tx: Tx) -> JobRow:
            assert leases.schedule(tx, job.uid, resources, executor="x", start_timeout_us=60 * SECOND)
            row = lifecycle.lock_job(tx, job.uid)
            assert row is not None
            fence = Fence(AttemptName("p", job_id, row.attempt), row.fencing_token)
            leases.claim(tx, fence, runner_id="r", node="n", lease_us=60 * SECOND)
            return row

        row = await self.db.write(work)
        return Fence(AttemptName("p", job_id, row.attempt), row.fencing_token)

    async def jobs(self) -> list[JobRow]:
        """All jobs of the project."""
        return await self.db.read(records.page_of_jobs, "p", None, records.Order("create_time", False), None, 10_000)

    async def queued(self) -> list[JobRow]:
        """Jobs that could start now, by their creation."""
        free = [
            job
            for job in await self.jobs()
            if job.state is JobState.QUEUED and job.state_reason != "WAITING_FOR_TEACHER"
        ]
        return sorted(free, key=lambda job: (job.create_us, job.job_id))

    async def resolve(self) -> None:
        """Lets students whose teacher has ended start."""
        for uid in await self.db.read(teachers.unresolved_students):
            await self.db.write(teachers.resolve_teacher, uid, actor="scheduler")

    async def retry(self) -> sweep_pb2.Sweep:
        return await self.servicer.RetrySweep(sweep_pb2.RetrySweepRequest(name=NAME), None)

    async def run(
        self, failing: Sequence[str] = (), *, sweep_id: str = "s", unreachable: float = 0.0, rounds: int = 500
    ) -> list[str]:
        """Steps and does jobs until a sweep has ended. Returns the ids of the jobs that ran.

        Args:
            failing: jobs that fail.
            unreachable: jobs with a smaller density than this fail because of it.
        """
        ran: list[str] = []
        for _ in range(rounds):
            await self.controller.step()
            row = await self.db.read(sweep_records.sweep_named, SweepName("p", sweep_id))
            assert row is not None
            if row.state in ENDED:
                return ran
            await self.resolve()
            for job in await self.queued():
                if job_pb2.CompressionSpec.FromString(job.spec).target_density < unreachable:
                    await self.fail(job.job_id, FailureReason.DENSITY_NOT_REACHED)
                else:
                    await (self.fail(job.job_id) if job.job_id in failing else self.succeed(job.job_id))
                ran.append(job.job_id)
        raise AssertionError(f"the sweep is {row} after {rounds} rounds")


def manifest_of(spec: job_pb2.CompressionSpec, metrics: dict[str, float]) -> dict[str, Any]:
    """The manifest of a job's artifact; its size follows from the density."""
    kept = round(1_000_000 * spec.target_density)
    return {
        "files": [{"path": "weights", "size_bytes": 2 * kept, "sha256": "ab" * 32, "media_type": "x/y"}],
        "metrics": metrics,
        "primary_metric": "accuracy",
        "versions": {"mvprune": mvprune.__version__},
        "accounting": {
            "target_density": spec.target_density,
            "density": spec.target_density,
            "prunable_weights": 1_000_000,
            "kept_weights": kept,
            "encoder_parameters": 1_100_000,
            "encoder_nonzero": kept + 100_000,
            "total_parameters": 2_000_000,
            "total_nonzero": kept + 1_000_000,
            "dense_bytes": 8_000_000,
            "sparse_bytes": 2 * kept,
            "encoder_bytes": kept,
            "embedding_bytes": kept,
        },
    }
