"""What a running server shows of itself: status, metrics, health, reflection."""

from __future__ import annotations

import asyncio
import json
import os
import re
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from sqlalchemy import make_url

from mvprune.cli import main
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings
from mvprune_service.executors.base import ExecutorUnavailable
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.observability.health import LIVENESS

from ..conftest import server_path
from ..neighbours import PostgresServer, S3Server
from ..waiting import until_seen
from .servers import Data

Health = health_pb2.HealthCheckResponse
SERVICES = (LIVENESS, "", *(f"mvprune.v1.{name}Service" for name in ("Job", "Artifact", "Catalog", "Admin", "Worker")))


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
        "dataset": {"train": server_path(data.train), "validation": server_path(data.validation)},
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


async def problems_told(service: Service, capsys: pytest.CaptureFixture[str], words: str) -> str:
    """The status of a server with problems, once it has these words: parts that answer late are problems too."""

    async def shown() -> str:
        assert await mvpctl("server", "status", "--address", service.address) == 1
        return capsys.readouterr().out

    return await until_seen(shown, lambda text: re.search(words, text))


async def test_status_of_a_server_that_is_well(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    async def shown() -> tuple[int, Any]:
        code = await mvpctl("server", "status", "--address", service.address, "-o", "json")
        return code, json.loads(capsys.readouterr().out)

    _, status = await until_seen(shown, lambda seen: seen[0] == 0)
    assert status["problems"] == {}
    assert (status["database"], status["schema_revision"][:2]) == ("sqlite", "00")
    assert status["store"] == (service.settings.home / "store").as_uri()
    assert status["capacity"]["cpus"] > 0
    assert status["capacity"]["reserved_cpus"] == 0
    assert status["oldest_queued_age"] is None
    assert set(status["jobs"].values()) == {0}
    assert status["executor"] == "local processes"
    assert status["quarantine"] == {"objects": 0, "size_bytes": 0, "artifacts": 0, "since": None}


async def test_status_of_a_server_with_problems(
    executor_away: None, service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await submit(service, tmp_path)
    text = await problems_told(service, capsys, r"queue +1 waiting, the oldest \d+s ago")
    assert re.search(r"state +has problems", text)
    assert re.search(r"reserved +unknown", text)
    assert re.search(r"executor +ExecutorUnavailable: no route to Bearer \[redacted\] \(since ", text)


async def test_a_bucket_that_is_not_there_is_a_problem(
    tmp_path: Path, seaweedfs: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in seaweedfs.env.items():
        monkeypatch.setenv(name, value)
    async with Service(settings(tmp_path, store="s3://no-such-bucket/x")) as service:
        await problems_told(service, capsys, r"store +StoreUnavailable: s3://no-such-bucket/x: .*NoSuchBucket")
        await until_seen(lambda: scrape(service), lambda seen: seen["mvprune_store_up"] == 0)


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
        after = await until_seen(
            lambda: scrape(service), lambda seen: counted(seen, "WatchJob", "CANCELLED") == cancelled
        )
    assert after[open_streams] == 0
    assert counted(after, "CreateJob", "OK") == counted(before, "CreateJob", "OK") + 1
    assert counted(after, "GetJob", "NOT_FOUND") == counted(before, "GetJob", "NOT_FOUND") + 1
    seconds = 'mvprune_rpc_duration_seconds_count{method="/mvprune.v1.JobService/%s"}'
    assert seconds % "GetJob" in after
    assert seconds % "WatchJob" not in after, "a stream lasts as long as somebody listens"
    # What the database knows may be a second old, and a loop may not have had its turn.
    watched = 'mvprune_loop_step_duration_seconds_count{loop="watchdog"}'
    queued = 'mvprune_jobs{state="QUEUED"}'
    after = await until_seen(lambda: scrape(service), lambda seen: seen.get(queued) == 1 and seen.get(watched, 0) > 0)
    assert 0 < after["mvprune_queue_oldest_age_seconds"] < 3600
    assert after["mvprune_lease_lag_seconds"] == 0
    assert after["mvprune_database_up"] == after["mvprune_store_up"] == 1
    assert [after[f"mvprune_quarantine_{what}"] for what in ("objects", "artifacts", "bytes")] == [0, 0, 0]
    assert after["mvprune_executor_up"] == 0
    assert "mvprune_capacity_cpus" not in after, "it is not known"
    assert after["mvprune_reserved_cpus"] == 0
    assert [value for name, value in after.items() if name.startswith("mvprune_build_info")] == [1]
    assert after["mvprune_database_commit_writes_count"] > 0
    assert after["process_open_fds"] > 0
    labels = {value for name in after if name.startswith("mvprune_") for value in re.findall(r'="([^"]*)"', name)}
    assert not [label for label in labels if job.uid in label or "projects/" in label or job.name[-8:] in label]


async def test_metrics_of_the_capacity(service: Service) -> None:
    seen = await until_seen(lambda: scrape(service), lambda seen: seen["mvprune_executor_up"] == 1)
    assert seen["mvprune_capacity_cpus"] == len(os.sched_getaffinity(0))
    assert seen["mvprune_capacity_memory_bytes"] > 0
    assert seen["mvprune_capacity_gpus"] >= 0


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
        "mvprune.v1.SweepService",
        "mvprune.v1.UploadService",
        "mvprune.v1.CatalogService",
        "mvprune.v1.AdminService",
        "mvprune.v1.WebhookService",
        "mvprune.v1.IssuerService",
        "grpc.health.v1.Health",
    }
    assert await reflection_ends(service.worker_address) is grpc.StatusCode.UNIMPLEMENTED


async def reflected(address: str) -> set[str]:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await call.read()
        return {service.name for service in answer.list_services_response.service}


async def reflection_ends(address: str) -> grpc.StatusCode:
    """How a call ends that asks nothing: a question may still be on its way when it is refused, an error of its own."""
    async with grpc.aio.insecure_channel(address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        code: grpc.StatusCode = await call.code()
        return code


async def test_reflection_can_be_switched_off(tmp_path: Path) -> None:
    async with Service(settings(tmp_path, reflection=False)) as service:
        assert await reflection_ends(service.address) is grpc.StatusCode.UNIMPLEMENTED


async def test_metrics_are_not_shown_to_other_machines_by_accident(tmp_path: Path) -> None:
    asked = settings(tmp_path).model_copy(update={"metrics_address": "0.0.0.0:0"})
    with pytest.raises(StartError, match="--allow-remote"):
        async with Service(asked):
            pass


async def test_a_database_that_takes_no_writes_for_a_while(
    tmp_path: Path, postgres: PostgresServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover, or on a full disk: what can still be read is no reason to send callers here."""
    monkeypatch.setattr("mvprune_service.assembly.components._WRITE_SECONDS", 0.5)
    url = postgres.create()
    name = make_url(url).database

    def read_only(state: str) -> None:
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {state}")
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")

    asked = settings(tmp_path, database_url=url, janitor_seconds=0.5)
    async with Service(asked) as service, grpc.aio.insecure_channel(service.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        async def becomes(status: Any) -> None:
            await until_seen(lambda: stub.Check(health_pb2.HealthCheckRequest()), lambda seen: seen.status == status)

        await becomes(Health.SERVING)
        read_only("on")
        await becomes(Health.NOT_SERVING)
        await problems_told(service, capsys, r"database writes +ReadOnlySqlTransaction: .* read-only transaction")
        read_only("off")
        await becomes(Health.SERVING)
        await until_seen(lambda: mvpctl("server", "status", "--address", service.address), lambda code: code == 0)
    postgres.drop(url)


async def test_a_database_that_goes_and_comes(tmp_path: Path, postgres: PostgresServer) -> None:
    url = postgres.create()
    settings_with_postgres = settings(tmp_path, database_url=url)
    async with Service(settings_with_postgres) as service, grpc.aio.insecure_channel(service.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        jobs = job_pb2_grpc.JobServiceStub(channel)

        async def becomes(status: Any) -> None:
            await until_seen(lambda: stub.Check(health_pb2.HealthCheckRequest()), lambda seen: seen.status == status)

        await becomes(Health.SERVING)
        postgres.stop()
        try:
            await becomes(Health.NOT_SERVING)
            alive = await stub.Check(health_pb2.HealthCheckRequest(service=LIVENESS))
            assert alive.status == Health.SERVING, "a restart would not bring the database back"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await jobs.ListJobs(job_pb2.ListJobsRequest(parent="projects/default"))
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert (await scrape(service))["mvprune_database_up"] == 0
            assert await mvpctl("server", "status", "--address", service.address) == 1
        finally:
            postgres.start()
        await becomes(Health.SERVING)
        # A question that was asked during the outage may be answered first.
        await until_seen(lambda: scrape(service), lambda seen: seen["mvprune_database_up"] == 1)
    postgres.drop(url)
