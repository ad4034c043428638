"""Many workers and many starts on one server with PostgreSQL: what a heartbeat and a GetJob cost, and where time goes.

Run: make bench-heartbeats (ARGS='--workers 10000 --starts 50 --seconds 300 --json FILE'). Server, PostgreSQL and load
are processes of their own on one machine. Workers are stand-ins that claim, report and end, without any training; a
stand-in of Ray's HTTP interface starts them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
from service_under_load import SPEC, Running, new_job
from sqlalchemy import make_url
from stand_in_ray import StandInRay
from tests.neighbours import PostgresServer

import mvprune
from mvprune.v1 import job_pb2, job_pb2_grpc, worker_pb2, worker_pb2_grpc
from mvprune_service.clock import SECOND
from mvprune_service.db import leases, lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.domain.placement import Reserved
from mvprune_service.ids import AttemptName
from mvprune_service.secret import attempt_secret, load_key

T = TypeVar("T")

_FILLED = 200  # jobs a transaction
_CHANNELS = 4  # of workers: one connection carries some thousand calls a second
_LIFE_SECONDS = 20.0  # of a worker that is started during the run
_RETRY_SECONDS = 2.0  # of a worker, after a call without an answer
_READERS = 4  # callers of GetJob, one after the other


@dataclass
class Load:
    """What was measured."""

    beats: list[float] = field(default_factory=list)  # seconds of each heartbeat
    gets: list[float] = field(default_factory=list)  # seconds of each GetJob
    created: int = 0
    claimed: int = 0
    failed: dict[str, int] = field(default_factory=dict)  # calls, by their status
    interval: float = 1.0  # seconds: the server's default, until it asks for another

    async def timed(self, call: Awaitable[T], times: list[float] | None = None) -> T | None:
        """The answer of a call; None if it failed."""
        started = time.perf_counter()
        try:
            answer = await call
        except grpc.aio.AioRpcError as error:
            name = error.code().name
            self.failed[name] = self.failed.get(name, 0) + 1
            return None
        if times is not None:
            times.append(time.perf_counter() - started)
        return answer


@dataclass
class Workers:
    """Stand-in workers on some connections."""

    load: Load
    stubs: list[Any]

    async def run(self, attempt: str, token: int, secret: str, *, claims: bool, seconds: float) -> None:
        """One worker, to its end or to that of the run."""
        stub = random.choice(self.stubs)
        metadata = (("authorization", f"Bearer {secret}"),)
        lease = worker_pb2.Lease(attempt=attempt, fencing_token=token)
        if claims:
            claim = worker_pb2.ClaimAttemptRequest(lease=lease, runner_id="r", node="n", version=mvprune.__version__)
            while True:
                if await self.load.timed(stub.ClaimAttempt(claim, metadata=metadata, timeout=60)) is not None:
                    break
                await asyncio.sleep(_RETRY_SECONDS)
            self.load.claimed += 1
        end, step = time.perf_counter() + seconds, 0
        delay = random.uniform(0, self.load.interval)
        while time.perf_counter() + delay < end:
            await asyncio.sleep(delay)
            step += 1
            beat = worker_pb2.HeartbeatRequest(lease=lease, progress={"phase": "pruning", "step": step})
            answer = await self.load.timed(stub.Heartbeat(beat, metadata=metadata, timeout=60), self.load.beats)
            if answer is not None and answer.HasField("interval"):  # as a worker does: else the one before
                self.load.interval = answer.interval.ToTimedelta().total_seconds()
            delay = self.load.interval * random.uniform(0.8, 1.2)
            if answer is None:
                delay = min(self.load.interval, _RETRY_SECONDS)
        if claims:
            outcome = worker_pb2.CompleteAttemptRequest(lease=lease, failure={"reason": job_pb2.Failure.NAN_LOSS})
            await self.load.timed(stub.CompleteAttempt(outcome, metadata=metadata, timeout=60))


async def fill(url: str, workers: int) -> list[Fence]:
    """Makes so many running attempts."""
    with closing(Database(url)) as db:
        fences: list[Fence] = []
        for start in range(0, workers, _FILLED):
            fences += await db.write(_add_running, start, min(workers, start + _FILLED))
        return fences


def _add_running(tx: Tx, start: int, end: int) -> list[Fence]:
    fences = []
    for number in range(start, end):
        job = lifecycle.create(tx, new_job("running", f"j{number}"), actor="bench")
        leases.schedule(tx, job.uid, Reserved(1, 0, 0), executor="ray", start_timeout_us=SECOND)
        fence = Fence(AttemptName("running", f"j{number}", 1), job.fencing_token + 1)
        leases.claim(tx, fence, runner_id="bench", node="bench", lease_us=600 * SECOND)
        fences.append(fence)
    return fences


@contextmanager
def server(home: Path, url: str, ray: StandInRay) -> Iterator[Running]:
    """mvprune-server on PostgreSQL."""
    flags = {
        "home": home,
        "database-url": url,
        "ray-address": ray.address,
        "address": "127.0.0.1:0",
        "worker-address": "127.0.0.1:0",
        "max-queued-jobs": 1_000_000,
        "drain-seconds": 0,
        "log-level": "warning",
    }
    program = Path(sys.executable).with_name("mvprune-server")
    process = subprocess.Popen([program, *(f"--{name}={value}" for name, value in flags.items())])
    try:
        while not (home / "server.json").exists():
            if process.poll() is not None:
                raise RuntimeError("the server did not start; its messages are above")
            time.sleep(0.05)
        status = json.loads((home / "server.json").read_text())
        yield Running(process.pid, status["address"], status["worker_address"])
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:  # it has more calls to end than that
            process.kill()
            process.wait()


async def run(
    running: Running, ray: StandInRay, key: bytes, fences: list[Fence], starts: float, seconds: float
) -> Load:
    """The load itself."""
    load = Load()
    own = (("grpc.use_local_subchannel_pool", 1),)  # a connection for each channel
    channels = [grpc.aio.insecure_channel(running.worker_address, own) for _ in range(_CHANNELS)]
    workers = Workers(load, [worker_pb2_grpc.WorkerServiceStub(channel) for channel in channels])
    clients = grpc.aio.insecure_channel(running.address)
    jobs: Any = job_pb2_grpc.JobServiceStub(clients)
    end = time.perf_counter() + seconds
    tasks: set[asyncio.Task[Any]] = set()

    def start(work: Any) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def get() -> None:
        while time.perf_counter() < end:
            name = f"projects/running/jobs/j{random.randrange(len(fences))}"
            await load.timed(jobs.GetJob(job_pb2.GetJobRequest(name=name), timeout=60), load.gets)
            await asyncio.sleep(0.02)

    async def create() -> None:
        request = job_pb2.CreateJobRequest(
            parent="projects/started", job={"spec": SPEC, "policy": {"resources": {"cpus": 1.0}}}
        )
        begun = time.perf_counter()
        while time.perf_counter() < end:
            await asyncio.sleep(max(0.0, begun + load.created / starts - time.perf_counter()))
            load.created += 1
            start(load.timed(jobs.CreateJob(request, timeout=60)))

    def launched(env: dict[str, str]) -> None:
        start(
            workers.run(
                env["MVPRUNE_ATTEMPT"],
                int(env["MVPRUNE_FENCING_TOKEN"]),
                env["MVPRUNE_ATTEMPT_SECRET"],
                claims=True,
                seconds=min(_LIFE_SECONDS, max(0.0, end - time.perf_counter())),
            )
        )

    ray.on_launch(launched, asyncio.get_running_loop())
    for fence in fences:
        secret = attempt_secret(key, str(fence.attempt), fence.token)
        start(workers.run(str(fence.attempt), fence.token, secret, claims=False, seconds=seconds))
    await asyncio.gather(create() if starts else asyncio.sleep(0), *(get() for _ in range(_READERS)))
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in (*channels, clients):
        await channel.close()
    return load


def rows_written(postgres: PostgresServer, url: str) -> int:
    """Rows that were inserted, updated or deleted in a database so far."""
    name = make_url(url).database
    query = f"SELECT tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = '{name}'"  # noqa: S608
    return int(postgres.execute(query)[0][0])


def main() -> None:
    """Prints one line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=10_000, help="running from the beginning (default: 10000)")
    parser.add_argument("--starts", type=float, default=50.0, help="jobs a second (default: 50)")
    parser.add_argument("--seconds", type=float, default=300.0, help="default: 300")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mvprune-bench-") as folder, StandInRay() as ray:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        postgres = PostgresServer(Path(folder) / "postgres")
        try:
            url = postgres.create()
            fences = asyncio.run(fill(url, args.workers))
            with server(home, url, ray) as running:
                key = load_key(home / "key")
                used, rows = running.cpu_seconds, rows_written(postgres, url)
                load = asyncio.run(run(running, ray, key, fences, args.starts, args.seconds))
                figures = _figures(load, args.seconds, running.cpu_seconds - used, rows_written(postgres, url) - rows)
        finally:
            postgres.stop()
    figures = {"workers": args.workers, "starts asked a second": args.starts, "seconds": args.seconds, **figures}
    for name, value in figures.items():
        print(f"{name:<32} {value}")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


def _figures(load: Load, seconds: float, cpu_seconds: float, rows: int) -> dict[str, Any]:
    return {
        "heartbeats a second": round(len(load.beats) / seconds, 1),
        "interval asked for, s": load.interval,
        "heartbeat p50, ms": _quantile(load.beats, 50),
        "heartbeat p99, ms": _quantile(load.beats, 99),
        "GetJob p50, ms": _quantile(load.gets, 50),
        "GetJob p99, ms": _quantile(load.gets, 99),
        "jobs created a second": round(load.created / seconds, 1),
        "attempts claimed a second": round(load.claimed / seconds, 1),
        "CPU of the server, cores": round(cpu_seconds / seconds, 2),
        "rows written a second": round(rows / seconds, 1),
        "calls that failed": load.failed,
    }


def _quantile(times: list[float], percent: int) -> float | None:
    """Milliseconds."""
    return round(1000 * statistics.quantiles(times, n=100)[percent - 1], 1) if len(times) > 1 else None


if __name__ == "__main__":
    main()
