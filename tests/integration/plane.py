"""A service in this process as its clients meet it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from mvprune.v1 import artifact_pb2_grpc, job_pb2, job_pb2_grpc, worker_pb2_grpc
from mvprune_service.assembly.service import Service
from mvprune_service.config import Settings

from ..conftest import Tiny, server_path
from ..refusals import status_details
from ..warm.python import warm_python

PARENT = "projects/default"


class Plane:
    """A running service with stubs to it."""

    def __init__(self, service: Service, tiny: Tiny) -> None:
        self.tiny = tiny
        self.service = service
        self.channel = grpc.aio.insecure_channel(service.address)
        self.worker_channel = grpc.aio.insecure_channel(service.worker_address)
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.artifacts = artifact_pb2_grpc.ArtifactServiceStub(self.channel)
        self.workers = worker_pb2_grpc.WorkerServiceStub(self.worker_channel)

    def job(self, steps: int = 120, **spec: Any) -> job_pb2.Job:
        values: dict[str, Any] = {
            "model": "tiny-bert",
            "task": "text-classification",
            "dataset": {"train": server_path(self.tiny.train), "validation": server_path(self.tiny.validation)},
            "movement": {},
            "target_density": 0.1,
            "training": {"max_steps": steps, "batch_size": 16, "learning_rate": 5e-3},
        }
        values |= spec
        if "magnitude" in spec:
            del values["movement"]
        values = {name: value for name, value in values.items() if value is not None}
        return job_pb2.Job(spec=values, policy={"resources": {"cpus": 1.0}})

    async def aclose(self) -> None:
        """Closes its channels."""
        await self.channel.close()
        await self.worker_channel.close()

    async def create(self, job: job_pb2.Job | None = None, **request: Any) -> job_pb2.Job:
        call = job_pb2.CreateJobRequest(parent=PARENT, job=job or self.job(), **request)
        created: job_pb2.Job = await self.jobs.CreateJob(call)
        return created

    async def watch(self, name: str, after: int = 0) -> list[job_pb2.WatchJobResponse]:
        call = self.jobs.WatchJob(job_pb2.WatchJobRequest(name=name, after_sequence=after))
        return [message async for message in call]


def local_settings(tmp_path: Path, tiny: Tiny) -> Settings:
    """A server on free ports that runs jobs as plain processes, and takes none away from a busy machine."""
    return Settings(
        home=tmp_path / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        executor="local",
        models=tiny.models,
        roots=(tiny.train.parent,),
        lease_seconds=300,
        heartbeat_seconds=0.2,
        worker_python=warm_python(),
    )


async def refused(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Status, reason and field violations of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    reason, fields = "", {}
    for detail in status_details(caught.value):
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if detail.Unpack(info):
            reason = info.reason
        elif detail.Unpack(bad):
            fields = {violation.field: violation.description for violation in bad.field_violations}
    return caught.value.code(), reason, fields
