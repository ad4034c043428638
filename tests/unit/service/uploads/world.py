"""Jobs and sweeps that use uploads, and what removes both."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from sqlalchemy import select
from tests.conftest import Tiny
from tests.unit.service.beating import steady

import mvprune
from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2, sweep_pb2, upload_pb2, worker_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.api.checks.uploaded import UploadReader
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.log_reader import LogReader
from mvprune_service.api.submissions import Submissions, capacity_of
from mvprune_service.api.sweep_creation import SweepCreation
from mvprune_service.api.sweeps import SweepServicer
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.changes import Changes
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.sweep_controller import SweepController
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.tables.uploads import UPLOAD_CHUNKS
from mvprune_service.domain.placement import Reserved
from mvprune_service.ids import JobName
from mvprune_service.observability.probes import Problems
from mvprune_service.secret import attempt_secret
from mvprune_service.stores.base import BlobStore

from ..conftest import Call, ScriptedExecutor, TestClock
from .sender import Sender

KEY = b"k" * 32
SPEC = {"task": "sst2", "movement": {}, "targetDensity": 0.1}


class World:
    """A server whose loops are stepped by hand."""

    def __init__(
        self,
        db: Database,
        store: BlobStore,
        executor: ScriptedExecutor,
        clock: TestClock,
        sender: Sender,
        folder: Path,
    ) -> None:
        self.db, self.store, self.clock, self.sender, self.folder = db, store, clock, sender, folder
        self.lost = LostChunks(db, store)
        changes, capacity, self.reader = Changes(), capacity_of(executor), UploadReader(db, store, self.lost, folder)
        self.worker = WorkerServicer(db, KEY, self.lost, pace=steady(db), clock=clock)
        submissions = Submissions(db, Roots(), capacity, quota=QueueQuota(1000), uploads=self.reader)
        self.jobs = JobServicer(db, changes, Feeds(db, changes), submissions, LogReader(db, store))
        creation = SweepCreation(db, Roots(), capacity, max_points=100, uploads=self.reader, clock=clock)
        self.sweeps = SweepServicer(db, changes, creation)
        self.controller = SweepController(db, QueueQuota(1000))
        self.janitor = Janitor(
            db,
            executor,
            store,
            Problems(),
            server="a",
            request_days=7,
            checkpoint_days=7,
            upload_days=1,
            quarantine_days=1,
            clock=clock,
        )

    async def send_model(self, tiny: Tiny, **changed: bytes) -> str:
        """Sends the model; returns the reference to it."""
        files = {path.name: path.read_bytes() for path in tiny.model.iterdir()} | changed
        return reference(await self.sender.send(files))

    async def send_data(self, path: Path, content: bytes | None = None) -> str:
        """Sends a data file; returns the reference to it."""
        content = await asyncio.to_thread(path.read_bytes) if content is None else content
        sent = await self.sender.send({path.name: content}, kind=upload_pb2.Upload.DATA, name=path.name)
        return reference(sent)

    async def submit(
        self, job_id: str = "a", *, validate_only: bool = False, project: str = "p", **spec: Any
    ) -> job_pb2.Job:
        request = {"parent": f"projects/{project}", "jobId": job_id, "job": {"spec": SPEC | spec}}
        made = ParseDict(request | {"validateOnly": validate_only}, job_pb2.CreateJobRequest())
        return await self.jobs.CreateJob(made, Call())  # type: ignore[arg-type]

    async def refused(self, **given: Any) -> dict[str, str]:
        """What is said about each field of a job that is refused."""
        try:
            await self.submit(**given)
        except ApiError as error:
            return dict(error.violations)
        raise AssertionError("it was accepted")

    async def create_sweep(self, axes: list[Any], *, validate_only: bool = False, **base: Any) -> sweep_pb2.Sweep:
        spec = {"base": SPEC | base, "axes": axes}
        request = {"parent": "projects/p", "sweepId": "s", "sweep": {"spec": spec}, "validateOnly": validate_only}
        return await self.sweeps.CreateSweep(ParseDict(request, sweep_pb2.CreateSweepRequest()), None)

    async def attempt_of(self, job_id: str) -> Attempt:
        """Lets an attempt of a job begin."""
        job = await self.db.read(records.job_named, JobName("p", job_id))
        assert job is not None
        await self.db.write(leases.schedule, job.uid, Reserved(1, 0, 1), executor="e", start_timeout_us=10**9)
        found = await self.db.read(records.live_attempts)
        (live,) = (one for one in found if one.job.job_id == job_id)
        return Attempt(self.worker, str(live.name), live.attempt.fencing_token)

    async def delete_job(self, job_id: str = "a") -> None:
        name = f"projects/p/jobs/{job_id}"
        await self.jobs.CancelJob(job_pb2.CancelJobRequest(name=name), None)
        await self.jobs.DeleteJob(job_pb2.DeleteJobRequest(name=name), None)

    async def uids(self) -> set[str]:
        """Of the chunks in the database."""
        return set(await self.db.read(lambda conn: list(conn.execute(select(UPLOAD_CHUNKS.c.uid)).scalars())))

    def objects(self) -> set[str]:
        """Of the chunks in the store."""
        return {entry.key.removeprefix("uploads/") for entry in self.store.list("uploads/")}


class Attempt:
    """The worker of an attempt."""

    def __init__(self, servicer: WorkerServicer, name: str, token: int) -> None:
        self.servicer = servicer
        self.lease = worker_pb2.Lease(attempt=name, fencing_token=token)
        self.secret = attempt_secret(KEY, name, token)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.secret}"),)

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def claim(self) -> worker_pb2.ClaimAttemptResponse:
        request = worker_pb2.ClaimAttemptRequest(lease=self.lease, runner_id="r", version=mvprune.__version__)
        return await self.servicer.ClaimAttempt(request, self)  # type: ignore[arg-type]

    async def report_lost(self, *chunks: str) -> list[str]:
        request = worker_pb2.ReportLostChunksRequest(lease=self.lease, chunks=chunks)
        return list((await self.servicer.ReportLostChunks(request, self)).missing)  # type: ignore[arg-type]


def reference(upload: upload_pb2.Upload) -> str:
    """As a job refers to an upload."""
    return f"upload:{upload.name.rpartition('/')[2]}/{upload.display_name}"
