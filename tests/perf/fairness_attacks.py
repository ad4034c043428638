"""The attacks of bench_fairness: what one token calls as often as it can."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc

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
