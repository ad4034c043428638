"""A server in a process of its own, its database filled beforehand, and what is needed to call it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from sqlalchemy import insert, select

from mvprune.v1 import job_pb2, job_pb2_grpc, worker_pb2
from mvprune_service.clock import SECOND
from mvprune_service.db import leases, lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.opening import prepare
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.jobs import EVENTS, JOBS
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.placement import Reserved
from mvprune_service.ids import AttemptName, new_uid
from mvprune_service.secret import attempt_secret, load_key

SPEC = job_pb2.CompressionSpec(model="bert-base-uncased", task="sst2", target_density=0.1, movement={}, seed=1)
CARRIED = AttemptName("carried", "carried", 1)
_PAGE = 5000  # rows a transaction
_LEASE_SECONDS = 3600
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Running:
    """A server's process."""

    pid: int
    address: str
    worker_address: str = ""
    ready_seconds: float = 0.0  # from its start to its first answer

    @property
    def cpu_seconds(self) -> float:
        """What it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    @property
    def resident_mb(self) -> float:
        """Memory it holds now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def url(home: Path) -> str:
    """The database in a home folder."""
    return f"sqlite:///{home / 'mvprune.sqlite'}"


def new_job(project: str, job_id: str) -> lifecycle.NewJob:
    """A job as a user would submit it."""
    return lifecycle.NewJob(project, job_id, SPEC, job_pb2.ExecutionPolicy(max_attempts=3), creator="bench")


def some_job() -> job_pb2.Job:
    """A job as it is answered."""
    return job_pb2.Job(name="projects/bench/jobs/j0", uid=new_uid(0), spec=SPEC, state=job_pb2.Job.QUEUED, etag="1")


async def fill(home: Path, projects: dict[str, int]) -> Fence:
    """Makes the database: so many finished jobs in each project, and CARRIED, which runs and holds all there is, so
    that none of the others is ever started. Returns what its worker shows."""
    with closing(Database(url(home))) as db:
        prepare(db, migrate=False)
        for project, count in projects.items():
            for start in range(0, count, _PAGE):
                await db.write(_add_finished, project, start, min(count, start + _PAGE))
        return await db.write(_carry)


def _carry(tx: Tx) -> Fence:
    job = lifecycle.create(tx, new_job(CARRIED.project, CARRIED.job), actor="bench")
    leases.schedule(tx, job.uid, Reserved(1e6, 0, 0), executor="bench", start_timeout_us=SECOND)
    fence = Fence(CARRIED, job.fencing_token + 1)
    leases.claim(tx, fence, runner_id="bench", node="bench", lease_us=_LEASE_SECONDS * SECOND)
    return fence


def _add_finished(tx: Tx, project: str, start: int, end: int) -> None:
    model = lifecycle.create(tx, new_job(project, f"j{start}"), actor="bench")._asdict()
    later = {"state": JobState.FAILED, "failure_reason": "NAN_LOSS", "failure_message": "…", "end_us": tx.now}
    rows = [
        model | later | {"uid": new_uid(tx.now + i), "job_id": f"j{i}", "create_us": tx.now + i, "metric": _metric(i)}
        for i in range(start + 1, end)
    ]
    tx.conn.execute(JOBS.update().where(JOBS.c.uid == model["uid"]).values(later))
    first = tx.conn.execute(select(EVENTS).where(EVENTS.c.job_uid == model["uid"])).one()._asdict()
    tx.conn.execute(insert(JOBS), rows)
    tx.conn.execute(insert(EVENTS), [first | {"job_uid": row["uid"]} for row in rows])


def _metric(number: int) -> float | None:
    """In an order that is not that of the jobs, with ties; every second job has none."""
    return number * 7919 % 10_007 / 10_007 if number % 2 else None


def heartbeat(home: Path, fence: Fence, step: int) -> tuple[worker_pb2.HeartbeatRequest, tuple[tuple[str, str], ...]]:
    """A sign of life of CARRIED, with progress that its watchers are told, and its credential."""
    request = worker_pb2.HeartbeatRequest(lease={"attempt": str(fence.attempt), "fencing_token": fence.token})
    request.progress.step = step
    secret = attempt_secret(load_key(home / "key"), str(fence.attempt), fence.token)
    return request, (("authorization", f"Bearer {secret}"),)


@contextmanager
def floor(job: job_pb2.Job) -> Iterator[Running]:
    """The bare server."""
    command = [sys.executable, str(Path(__file__).with_name("floor_server.py"))]
    with _process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(job.SerializeToString())
        process.stdin.close()
        yield Running(process.pid, f"127.0.0.1:{int(process.stdout.readline())}")


@contextmanager
def service(home: Path, counter: Path | None = None) -> Iterator[Running]:
    """mvprune-server on a home folder; with `counter`, reads for watchers are counted there."""
    counted = [sys.executable, str(Path(__file__).with_name("counted_server.py")), str(counter)]
    command = counted if counter else [str(Path(sys.executable).with_name("mvprune-server"))]
    flags = ["--home", str(home), "--executor", "local", "--address", "127.0.0.1:0", "--worker-address", "127.0.0.1:0"]
    flags += ["--max-queued-jobs", "1000000", "--drain-seconds", "0", "--log-level", "warning"]
    flags += ["--lease-seconds", str(_LEASE_SECONDS)]
    started = time.perf_counter()
    with _process([*command, *flags], stdout=subprocess.DEVNULL) as process:
        status = _status(home / "server.json", process)
        with grpc.insecure_channel(status["address"]) as channel:
            call = job_pb2.GetJobRequest(name=f"projects/{CARRIED.project}/jobs/{CARRIED.job}")
            job_pb2_grpc.JobServiceStub(channel).GetJob(call, wait_for_ready=True, timeout=60)
        ready = time.perf_counter() - started
        yield Running(process.pid, status["address"], status["worker_address"], ready)


def reads(counter: Path) -> int:
    """How many reads for watchers a server with this counter has done."""
    return int.from_bytes(counter.read_bytes(), "little")


async def in_flight(calls: int, seconds: float, call: Callable[[int], Awaitable[Any]]) -> int:
    """Calls with numbers from 0 on, so many at a time, for so long; returns how many were answered."""
    answered, end = 0, time.perf_counter() + seconds

    async def caller(number: int) -> None:
        nonlocal answered
        while time.perf_counter() < end:
            await call(number)
            answered += 1
            number += calls

    await asyncio.gather(*(caller(number) for number in range(calls)))
    return answered


def _status(file: Path, process: subprocess.Popen[bytes]) -> dict[str, str]:
    deadline = time.monotonic() + 60
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the server did not start; its messages are above")
        time.sleep(0.005)
    status: dict[str, str] = json.loads(file.read_text())
    return status


@contextmanager
def _process(command: list[str], **streams: Any) -> Iterator[Any]:
    process = subprocess.Popen(command, **streams)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)
