"""Several servers on one PostgreSQL and one store: real processes, and workers whose trainer does next to nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2

from mvprune.v1 import artifact_pb2, artifact_pb2_grpc, job_pb2, job_pb2_grpc

from ..neighbours import PostgresServer, free_ports
from ..refusals import status_details
from ..waiting import PATIENCE, until_true

PARENT = "projects/default"
RUN_SERVER = """
import sys
from mvprune_service.api import feeds
from mvprune_service.server import main
feeds._RECHECK_SECONDS = 3600.0  # watchers hear of changes by being told, or not at all
sys.exit(main())
"""
SUPERVISOR = """
import os, sys
from mvprune_workers.supervisor import main
os._exit(main([sys.executable, os.environ["TRAINER"]]))
"""
TRAINER = """
import argparse, hashlib, json, os, pathlib, time
from mvprune_workers.events import EventWriter, ResultEvent
from mvprune_workers.lifeline import Lifeline

parser = argparse.ArgumentParser()
parser.add_argument("--events-fd", type=int)
parser.add_argument("--output", type=pathlib.Path)
args, _ = parser.parse_known_args()
stage = pathlib.Path(os.environ["STAGE"])
lifeline, events = Lifeline(), EventWriter(args.events_fd)
seed = json.loads(lifeline.job())["spec"]["seed"]
(stage / f"{seed}.{os.getpid()}").touch()
while not (stage / "go").exists():
    time.sleep(0.02)
args.output.mkdir()
data = os.urandom(1000)
(args.output / "weights.bin").write_bytes(data)
file = {"path": "weights.bin", "size_bytes": 1000, "sha256": hashlib.sha256(data).hexdigest()}
manifest = {"files": [file], "metrics": {"eval/accuracy": 0.5}, "primary_metric": "accuracy", "accounting": {}}
(args.output / "manifest.json").write_text(json.dumps(manifest))
events.emit(ResultEvent(str(args.output)))
"""


class Replica:
    """One server process with a home of its own, and stubs to it."""

    def __init__(self, folder: Path, name: str, flags: list[str], addresses: tuple[str, str]) -> None:
        home = folder / name
        home.mkdir()
        # Replicas on one machine share its processes, as they share a Ray cluster elsewhere.
        (home / "processes").symlink_to(folder / "processes")
        command = [sys.executable, "-c", RUN_SERVER, "--home", str(home), *flags]
        command += ["--address", addresses[0], "--worker-address", addresses[1]]
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.channel = grpc.aio.insecure_channel(addresses[0])
        self.jobs = job_pb2_grpc.JobServiceStub(self.channel)
        self.artifacts = artifact_pb2_grpc.ArtifactServiceStub(self.channel)

    async def ready(self) -> None:
        """Waits until it serves."""
        try:
            await asyncio.wait_for(self.channel.channel_ready(), PATIENCE)
        except TimeoutError:
            pytest.fail(self.log.read_text())

    async def create(self, seed: int, cpus: float = 0.5) -> job_pb2.Job:
        spec = {"model": "bert-base-uncased", "task": "sst2", "magnitude": {}, "target_density": 0.1, "seed": seed}
        job = job_pb2.Job(spec=job_pb2.CompressionSpec(**spec), policy={"resources": {"cpus": cpus}})
        created: job_pb2.Job = await self.jobs.CreateJob(job_pb2.CreateJobRequest(parent=PARENT, job=job))
        return created

    async def watch(self, name: str) -> AsyncIterator[job_pb2.Job]:
        async for message in self.jobs.WatchJob(job_pb2.WatchJobRequest(name=name)):
            yield message.job

    async def end(self, name: str) -> job_pb2.Job:
        """The job, once it has ended."""
        async with asyncio.timeout(PATIENCE):
            return [job async for job in self.watch(name)][-1]

    async def close(self) -> None:
        self.process.kill()
        self.process.wait()
        await self.channel.close()


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where trainers say that they run, and wait for the file `go`."""
    shadow = tmp_path / "shadow" / "mvprune_workers"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n")
    (shadow / "__main__.py").write_text(SUPERVISOR)
    (tmp_path / "trainer.py").write_text(TRAINER)
    folder = tmp_path / "stage"
    folder.mkdir()
    for name, value in (("PYTHONPATH", shadow.parent), ("TRAINER", tmp_path / "trainer.py"), ("STAGE", folder)):
        monkeypatch.setenv(name, str(value))
    yield folder
    (folder / "go").touch()


Start = Callable[..., Replica]


@pytest.fixture
async def start(tmp_path: Path, postgres: PostgresServer, stage: Path) -> AsyncIterator[Start]:
    """Starts replica "a" or "b"; their database is empty in the beginning."""
    (tmp_path / "processes").mkdir()
    url = postgres.create(empty=True)
    ports = [f"127.0.0.1:{port}" for port in free_ports(4)]
    addresses = {"a": (ports[0], ports[1]), "b": (ports[2], ports[3])}
    flags = ["--database-url", url, "--store", (tmp_path / "store").as_uri(), "--key-file", str(tmp_path / "key")]
    flags += ["--worker-target", f"ipv4:{ports[1]},{ports[3]}", "--executor", "local"]
    flags += ["--roots", str(stage)]
    flags += ["--lease-seconds", "300", "--heartbeat-seconds", "0.2"]
    replicas: list[Replica] = []

    def start_one(name: str) -> Replica:
        replicas.append(Replica(tmp_path, name, flags, addresses[name]))
        return replicas[-1]

    yield start_one
    for replica in replicas:
        await replica.close()
    postgres.drop(url)


@pytest.mark.slow
async def test_replicas_share_the_work_and_one_finishes_what_the_other_began(start: Start, stage: Path) -> None:
    a, b = start("a"), start("b")
    await asyncio.gather(a.ready(), b.ready())
    cpus = len(os.sched_getaffinity(0))
    jobs = [await (a, b)[seed % 2].create(seed, cpus / 4) for seed in (1, 2, 3, 4)]
    waiting = await b.create(9, cpus)
    await until_true(lambda: _trainers(stage) == list("1234"), lambda: _trainers(stage))

    watching = a.watch(waiting.name)
    assert (await anext(watching)).state == job_pb2.Job.QUEUED
    await b.jobs.CancelJob(job_pb2.CancelJobRequest(name=waiting.name))
    async with asyncio.timeout(PATIENCE):
        async for job in watching:
            last = job
    assert last.state == job_pb2.Job.CANCELLED

    a.process.kill()
    a.process.wait()
    (stage / "go").touch()
    for job in jobs:
        last = await b.end(job.name)
        assert last.state == job_pb2.Job.SUCCEEDED, last
        assert last.attempt == 1
        await b.artifacts.GetArtifact(artifact_pb2.GetArtifactRequest(name=last.artifact))
    assert _trainers(stage) == list("1234"), "each was trained once"


def _trainers(stage: Path) -> list[str]:
    """The seeds that trainers were started for."""
    return sorted(path.stem for path in stage.glob("?.*"))


@pytest.mark.slow
async def test_an_outage_is_said_and_gets_over(start: Start, stage: Path, postgres: PostgresServer) -> None:
    (stage / "go").touch()
    replica = start("a")
    await replica.ready()
    first = await replica.create(1)
    postgres.stop()
    try:
        for call in (
            replica.jobs.GetJob(job_pb2.GetJobRequest(name=first.name)),
            replica.jobs.CancelJob(job_pb2.CancelJobRequest(name=first.name)),
            replica.create(2),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert _details(caught.value) == {"reason": "DATABASE_UNAVAILABLE", "retry_seconds": 2}
    finally:
        postgres.start()
    assert (await replica.end(first.name)).state == job_pb2.Job.SUCCEEDED
    assert (await replica.end((await replica.create(3)).name)).state == job_pb2.Job.SUCCEEDED


def _details(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for detail in status_details(error):
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            found["reason"] = info.reason
        elif detail.Unpack(retry):
            found["retry_seconds"] = retry.retry_delay.seconds
    return found
