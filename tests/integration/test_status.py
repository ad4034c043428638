"""What a running server shows of itself: status, metrics, health, reflection."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from mvprune.cli import main
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.config import Settings
from mvprune_service.executors.base import ExecutorUnavailable
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.service import Service, StartError

from ..neighbours import PostgresServer
from .servers import Data

Health = health_pb2.HealthCheckResponse
SERVICES = ("", *(f"mvprune.v1.{name}Service" for name in ("Job", "Artifact", "Catalog", "Admin", "Worker")))


def settings(tmp_path: Path, **more: Any) -> Settings:
    return Settings(
        home=tmp_path / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        metrics_address="127.0.0.1:0",
        executor="local",
        roots=(tmp_path,),
        **more,
    )


@pytest.fixture
def executor_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be started: jobs stay in the queue."""

    def capacity(self: LocalExecutor) -> None:
        raise ExecutorUnavailable("no route to Bearer s3cr3t")

    monkeypatch.setattr(LocalExecutor, "capacity", capacity)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with Service(settings(tmp_path)) as service:
        yield service


async def submit(service: Service, folder: Path) -> job_pb2.Job:
    data = Data.write(folder)
    spec = {
        "model": "bert-base-uncased",
        "task": "text-classification",
        "dataset": {"train": str(data.train), "validation": str(data.validation)},
        "movement": {},
        "target_density": 0.1,
    }
    async with grpc.aio.insecure_channel(service.address) as channel:
        request = job_pb2.CreateJobRequest(parent="projects/default", job=job_pb2.Job(spec=spec))
        job: job_pb2.Job = await job_pb2_grpc.JobServiceStub(channel).CreateJob(request)
        return job


async def mvpctl(*argv: str) -> int:
    return await asyncio.to_thread(main, list(argv))


async def scrape(service: Service) -> dict[str, float]:
    """Sample name with its labels → value."""

    def get() -> str:
        with urllib.request.urlopen(f"http://{service.metrics_address}/metrics") as answer:
            return str(answer.read().decode())

    lines = (await asyncio.to_thread(get)).splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


async def eventually(look: Callable[[], Awaitable[Any]], right: Callable[[Any], bool]) -> Any:
    """The first sight that is right."""
    for _ in range(300):
        if right(seen := await look()):
            return seen
        await asyncio.sleep(0.1)
    pytest.fail(f"for half a minute: {seen}")


async def test_status_of_a_server_that_is_well(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    assert await mvpctl("server", "status", "--address", service.address, "-o", "json") == 0
    status = json.loads(capsys.readouterr().out)
    assert status["problems"] == {}
    assert (status["database"], status["schema_revision"][:3]) == ("sqlite", "000")
    assert status["store"] == (service.settings.home / "store").as_uri()
    assert status["capacity"]["cpus"] > 0
    assert status["capacity"]["reserved_cpus"] == 0
    assert status["oldest_queued_age"] is None
    assert set(status["jobs"].values()) == {0}
    assert status["executor"] == "local processes"


async def test_status_of_a_server_with_problems(
    executor_away: None, service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await submit(service, tmp_path)
    assert await mvpctl("server", "status", "--address", service.address) == 1
    text = capsys.readouterr().out
    assert re.search(r"state +has problems", text)
    assert re.search(r"reserved +unknown", text)
    assert re.search(r"queue +1 waiting, the oldest \d+s ago", text)
    assert re.search(r"executor +ExecutorUnavailable: no route to Bearer \[redacted\] \(since ", text)


async def test_status_of_a_server_that_is_not_there(closed_port: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert await mvpctl("server", "status", "--address", f"127.0.0.1:{closed_port}") == 7
    assert "no server answers" in capsys.readouterr().err


async def test_metrics(executor_away: None, service: Service, tmp_path: Path) -> None:
    def counted(samples: dict[str, float], method: str, code: str) -> float:
        return samples.get(f'mvprune_rpc_requests_total{{code="{code}",method="/mvprune.v1.JobService/{method}"}}', 0)

    before = await scrape(service)
    job = await submit(service, tmp_path)
    async with grpc.aio.insecure_channel(service.address) as channel:
        jobs = job_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await jobs.GetJob(job_pb2.GetJobRequest(name="projects/default/jobs/none"))
        watch = jobs.WatchJob(job_pb2.WatchJobRequest(name=job.name))
        await watch.read()
        during = await scrape(service)
        watch.cancel()
        open_streams = 'mvprune_rpc_open_streams{method="/mvprune.v1.JobService/WatchJob"}'
        assert during[open_streams] == 1
        # A stream is counted once all of it has ended, a little after it is no longer open.
        cancelled = counted(before, "WatchJob", "CANCELLED") + 1
        after = await eventually(
            lambda: scrape(service), lambda seen: counted(seen, "WatchJob", "CANCELLED") == cancelled
        )
    assert after[open_streams] == 0
    assert counted(after, "CreateJob", "OK") == counted(before, "CreateJob", "OK") + 1
    assert counted(after, "GetJob", "NOT_FOUND") == counted(before, "GetJob", "NOT_FOUND") + 1
    seconds = 'mvprune_rpc_duration_seconds_count{method="/mvprune.v1.JobService/%s"}'
    assert seconds % "GetJob" in after
    assert seconds % "WatchJob" not in after, "a stream lasts as long as somebody listens"
    # What the database knows may be a second old.
    after = await eventually(lambda: scrape(service), lambda seen: seen['mvprune_jobs{state="QUEUED"}'] == 1)
    assert 0 < after["mvprune_queue_oldest_age_seconds"] < 60
    assert after["mvprune_lease_lag_seconds"] == 0
    assert after["mvprune_database_up"] == 1
    assert after["mvprune_database_commit_writes_count"] > 0
    assert after['mvprune_loop_step_duration_seconds_count{loop="watchdog"}'] > 0
    assert after["process_open_fds"] > 0
    labels = {value for name in after if name.startswith("mvprune_") for value in re.findall(r'="([^"]*)"', name)}
    assert not [label for label in labels if job.uid in label or "projects/" in label or job.name[-8:] in label]


async def test_health_and_reflection(service: Service) -> None:
    for address in (service.address, service.worker_address):
        async with grpc.aio.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for name in SERVICES:
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
                assert answer.status == Health.SERVING
    assert await reflected(service.address) == {
        "mvprune.v1.JobService",
        "mvprune.v1.ArtifactService",
        "mvprune.v1.CatalogService",
        "mvprune.v1.AdminService",
        "grpc.health.v1.Health",
    }
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await reflected(service.worker_address)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def reflected(address: str) -> set[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await call.read()
        if answer is grpc.aio.EOF:
            await call
        return {service.name for service in answer.list_services_response.service}


async def test_reflection_can_be_switched_off(tmp_path: Path) -> None:
    async with Service(settings(tmp_path, reflection=False)) as service:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await reflected(service.address)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_metrics_are_not_shown_to_other_machines_by_accident(tmp_path: Path) -> None:
    asked = settings(tmp_path).model_copy(update={"metrics_address": "0.0.0.0:0"})
    with pytest.raises(StartError, match="--allow-remote"):
        async with Service(asked):
            pass


async def test_a_database_that_goes_and_comes(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.create()
    settings_with_postgres = settings(tmp_path, database_url=url)
    async with Service(settings_with_postgres) as service, grpc.aio.insecure_channel(service.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        jobs = job_pb2_grpc.JobServiceStub(channel)

        async def becomes(status: Any) -> None:
            await eventually(lambda: stub.Check(health_pb2.HealthCheckRequest()), lambda seen: seen.status == status)

        await becomes(Health.SERVING)
        postgres.stop()
        try:
            await becomes(Health.NOT_SERVING)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await jobs.ListJobs(job_pb2.ListJobsRequest(parent="projects/default"))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert (await scrape(service))["mvprune_database_up"] == 0
            assert await mvpctl("server", "status", "--address", service.address) == 1
        finally:
            postgres.start()
        await becomes(Health.SERVING)
        assert (await scrape(service))["mvprune_database_up"] == 1
    postgres.drop(url)
