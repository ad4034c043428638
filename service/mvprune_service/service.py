"""The control plane as one object: what it is made of, how it starts, how it stops."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from mvprune.v1 import artifact_pb2, artifact_pb2_grpc, job_pb2, job_pb2_grpc, worker_pb2_grpc
from mvprune_migrations import upgrade
from mvprune_service.api.artifacts import ArtifactServicer
from mvprune_service.api.errors import ErrorInterceptor
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.changes import Changes
from mvprune_service.config import Settings
from mvprune_service.control.dispatcher import Dispatcher
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.loop import run_loop
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.db.database import Database
from mvprune_service.executors.base import Executor
from mvprune_service.executors.embedded_ray import EmbeddedRay, EmbeddedRayFailed
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.executors.ray import RayExecutor
from mvprune_service.secret import load_key
from mvprune_service.stores import open_store

log = logging.getLogger(__name__)

STATUS_FILE = "server.json"
_STOP_GRACE = 3.0
_MESSAGE_CAP = 1 << 20
_OPTIONS = (
    ("grpc.max_receive_message_length", _MESSAGE_CAP),
    ("grpc.so_reuseport", 0),  # a second server on the port must fail, not share it
)


class StartError(Exception):
    """The server cannot start; the text says why and what to do."""


class Service:
    """A running control plane. `async with Service(settings) as service: …`"""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.address = ""
        self.worker_address = ""
        self.executor_text = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        settings = self.settings
        for address in (settings.address, settings.worker_address):
            _refuse_remote(address, settings.allow_remote)
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._stack.enter_context(_lock(settings.home / "lock"))
        key = load_key(settings.home / "key")

        db = Database(settings.database)
        self._stack.callback(db.close)
        await asyncio.to_thread(upgrade, db.engine)
        changes = Changes()
        db.on_commit = changes.announce
        store = open_store(settings.store_url)
        executor = await self._executor()

        clients, self.address = await self._listen(settings.address)
        workers, self.worker_address = await self._listen(settings.worker_address)
        jobs = JobServicer(db, changes, settings.allowed_roots, executor)
        job_pb2_grpc.add_JobServiceServicer_to_server(jobs, clients)
        artifact_pb2_grpc.add_ArtifactServiceServicer_to_server(ArtifactServicer(db, store), clients)
        worker = WorkerServicer(
            db, key, lease_seconds=settings.lease_seconds, heartbeat_seconds=settings.heartbeat_seconds
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, workers)
        healthy = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(healthy, clients)

        environment = {
            "MVPRUNE_WORKER_TARGET": self.worker_address,
            "MVPRUNE_STORE": settings.store_url,
            "MVPRUNE_SCRATCH": str(settings.home / "scratch"),
            **settings.allowed_roots.to_environment(),
        }
        loops = {
            "scheduler": Scheduler(db, executor).step,
            "dispatcher": Dispatcher(db, executor, key, environment).step,
            "watchdog": Watchdog(db, executor, store, lease_seconds=settings.lease_seconds).step,
            "finalizer": Finalizer(db, store).step,
        }
        for server in (workers, clients):
            await server.start()
            self._stack.push_async_callback(server.stop, _STOP_GRACE)
        tasks = [asyncio.create_task(run_loop(name, step, changes, 1.0), name=name) for name, step in loops.items()]
        self._stack.push_async_callback(_cancel, tasks)
        services = (job_pb2.DESCRIPTOR.services_by_name, artifact_pb2.DESCRIPTOR.services_by_name)
        for name in ("", *(service.full_name for found in services for service in found.values())):
            await healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
        self._write_status()

    async def _executor(self) -> Executor:
        settings = self.settings
        executor: Executor
        if settings.executor == "local":
            executor = LocalExecutor(settings.home / "processes")
            self.executor_text = "local processes"
        elif settings.ray_address:
            executor = RayExecutor(settings.ray_address, token=os.environ.get("RAY_AUTH_TOKEN"))
            self.executor_text = f"Ray at {settings.ray_address}"
        else:
            ray = EmbeddedRay(settings.home)
            self._stack.push_async_callback(asyncio.to_thread, ray.stop)
            try:
                await asyncio.to_thread(ray.start)
            except EmbeddedRayFailed as error:
                raise StartError(str(error)) from None
            executor = ray.executor()
            self.executor_text = f"a Ray of its own at {ray.address}"
        self._stack.callback(executor.close)
        return executor

    async def _listen(self, address: str) -> tuple[grpc.aio.Server, str]:
        server = grpc.aio.server(interceptors=(ErrorInterceptor(),), options=_OPTIONS)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:
            port = 0
        if not port:
            raise StartError(f"cannot listen on {address}: is another server running there? (--address HOST:PORT)")
        return server, f"{address.rpartition(':')[0]}:{port}"

    def _write_status(self) -> None:
        path = self.settings.home / STATUS_FILE
        draft = path.with_suffix(".tmp")
        status = {"address": self.address, "worker_address": self.worker_address, "pid": os.getpid()}
        draft.write_text(json.dumps(status) + "\n")
        draft.replace(path)
        self._stack.callback(path.unlink, missing_ok=True)


async def _cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _refuse_remote(address: str, allowed: bool) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise StartError(f"got the address {address!r}; allowed: HOST:PORT, e.g. 127.0.0.1:7070")
    if host not in ("127.0.0.1", "localhost", "[::1]") and not allowed:
        raise StartError(f"{address} can be reached from elsewhere, without TLS: --allow-remote if you mean it")


def _lock(path: Path) -> IO[str]:
    """Held until closed: one server for one home folder."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StartError(f"another server uses {path.parent} (--home FOLDER for a second one)") from None
    return file
