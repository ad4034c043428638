"""The control plane as one object: what it is made of, how it starts, how it stops."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from mvprune.sources.references import Roots
from mvprune.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    artifact_pb2,
    artifact_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from mvprune_service import readable
from mvprune_service.api import access, auth, ports
from mvprune_service.api.admin import AdminServicer
from mvprune_service.api.artifacts import ArtifactServicer
from mvprune_service.api.catalog import CatalogServicer
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.handlers import Handlers
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.limits import RateLimiter
from mvprune_service.api.status import StatusReporter
from mvprune_service.api.streams import Streams
from mvprune_service.api.submissions import Submissions
from mvprune_service.api.tls import BadCertificate
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.changes import Changes
from mvprune_service.config import Settings
from mvprune_service.control.dispatcher import Dispatcher
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.loop import Loops
from mvprune_service.control.ownership import Ownership, Standing
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.db import opening, overview
from mvprune_service.db.database import Database
from mvprune_service.db.outages import DatabaseUnavailable
from mvprune_service.executors.base import Executor
from mvprune_service.executors.embedded_ray import EmbeddedRay, EmbeddedRayFailed
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.executors.ray import RayExecutor
from mvprune_service.lock import InUse, lock
from mvprune_service.observability import descriptors, metrics, scrape
from mvprune_service.observability.health import Health
from mvprune_service.observability.probes import Probe, Problems
from mvprune_service.secret import BadKey, load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable

log = logging.getLogger(__name__)

STATUS_FILE = "server.json"
_STOP_GRACE = 3.0
_MARK_SECONDS = 5.0  # that a start waits for a store
_CANNOT_START = (
    access.MissingRule,
    ports.PortError,
    BadCertificate,
    BadKey,
    InUse,
    opening.CannotOpen,
    readable.BadRoots,
)
_CONTRACT = tuple(
    service
    for file in (job_pb2, artifact_pb2, catalog_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)
_WORKER_CONTRACT = tuple(worker_pb2.DESCRIPTOR.services_by_name.values())
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
_REFLECTION = tuple(reflection_pb2.DESCRIPTOR.services_by_name.values())
_RATE, _BURST_SECONDS = 100.0, 2.0  # of a token's calls
_STREAMS = 200  # open of a token
_DESCRIPTOR_SECONDS = 2.0  # between counts
_STREAM_SECONDS = 2.0  # between looks at who has a stream open
_METRICS = "--metrics-address"
_WRITE_SECONDS = 10.0  # between looks whether the database takes writes: each makes the disk work


class StartError(Exception):
    """The server cannot start; the text says why and what to do."""


class Service:
    """A running control plane. `async with Service(settings) as service: …`

    Args:
        unwanted: says that nobody waits for the start any more: one that waits for a Ray of its own then raises
            StartUnwanted.
    """

    def __init__(self, settings: Settings, unwanted: Callable[[], bool] = lambda: False) -> None:
        self.settings = settings
        self._unwanted = unwanted
        self.address = ""
        self.worker_address = ""
        self.metrics_address = ""
        self.executor_text = ""
        self.roots = Roots()
        self._problems = Problems()
        self._streams = Streams()
        self._loops = Loops(self._problems)
        self._hurry = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException as error:
            await self._stack.aclose()
            if isinstance(error, _CANNOT_START):
                raise StartError(str(error)) from None
            if isinstance(error, DatabaseUnavailable):
                raise StartError(f"the database went away as the server started ({error})") from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def drain(self, seconds: float, hurry: asyncio.Event) -> None:
        """Gets ready to stop: health says NOT_SERVING, nothing of the queue is started any more, streams end with
        UNAVAILABLE, and for `seconds` other calls are still answered, so that whoever balances load can turn away.
        `hurry` cuts that short, and the calls under way too."""
        self._hurry = hurry
        await self._health.drain()
        await self._loops.stop("scheduler", "dispatcher")
        self._streams.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(hurry.wait(), seconds)

    async def _start(self) -> None:
        settings = self.settings
        access.check_complete((*_CONTRACT, *_WORKER_CONTRACT, _HEALTH, *_REFLECTION))
        self._take_home()
        key = load_key(settings.key)

        db = self._stack.enter_context(opening.opened(settings.database))
        await asyncio.to_thread(opening.prepare, db, migrate=settings.migrate)
        changes = Changes()
        db.on_commit = changes.announce
        db.listen()
        store = self._store(is_used=await db.read(overview.has_stored))
        await self._refuse_older_database(db, store)
        self.roots = readable.roots(settings)
        authenticator, clients, workers = self._handlers(db)
        servers = self._listen(clients, workers)
        if ports.is_auth_required(settings):
            await auth.ensure_operator(db, settings.home)
            self._stack.push_async_callback(authenticator.close)
        executor = await self._executor()

        submissions = Submissions(
            db,
            self.roots,
            executor,
            max_queued_jobs=settings.max_queued_jobs,
            retention_seconds=settings.retention_seconds,
        )
        jobs = JobServicer(db, changes, Feeds(db, changes), submissions)
        job_pb2_grpc.add_JobServiceServicer_to_server(jobs, clients)
        artifact_pb2_grpc.add_ArtifactServiceServicer_to_server(ArtifactServicer(db, store), clients)
        catalog_pb2_grpc.add_CatalogServiceServicer_to_server(CatalogServicer(self.roots), clients)
        status = StatusReporter(db, store, executor, self.executor_text, self._problems, lambda: self._streams.open)
        admin = AdminServicer(db, authenticator, status.status)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, clients)
        worker = WorkerServicer(
            db, key, lease_seconds=settings.lease_seconds, heartbeat_seconds=settings.heartbeat_seconds
        )
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, workers)
        await self._add_health(db, clients, workers)
        if settings.reflection:
            names = [service.full_name for service in (*_CONTRACT, _HEALTH)]
            servicer = reflection.aio.ReflectionServicer(names)
            reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, clients)

        environment = {
            **ports.worker_environment(settings, self.worker_address),
            "MVPRUNE_STORE": settings.store_url,
            "MVPRUNE_SCRATCH": str(settings.home / "scratch"),
            **self.roots.to_environment(),
            **{name: value for name, value in os.environ.items() if name.startswith("OTEL_")},
        }
        loops = {
            "scheduler": Scheduler(db, executor, max_running_gpus=settings.max_running_gpus).step,
            "dispatcher": Dispatcher(db, executor, key, environment).step,
            "watchdog": Watchdog(db, executor, store, lease_seconds=settings.lease_seconds).step,
            "finalizer": Finalizer(db, store).step,
        }
        janitor = Janitor(
            db,
            executor,
            store,
            self._problems,
            server=f"{socket.gethostname()}:{settings.home}",
            request_days=settings.request_days,
            checkpoint_days=settings.checkpoint_days,
            quarantine_days=settings.quarantine_days,
        )
        for server in servers:
            await server.start()
        self._stack.push_async_callback(self._stop, *servers)
        self._stack.push_async_callback(self._loops.stop)
        for name, step in loops.items():
            self._loops.start(name, step, changes, 1.0)
        # With changes of their own: only their interval wakes them.
        self._loops.start("janitor", janitor.step, Changes(), settings.janitor_seconds)
        self._loops.start("streams", self._streams.step, Changes(), _STREAM_SECONDS)
        descriptor_watch = descriptors.DescriptorWatch(self._problems)
        self._loops.start("descriptors", descriptor_watch.step, Changes(), _DESCRIPTOR_SECONDS)
        await self._health.step()
        self._loops.start("health", self._health.step, Changes(), 1.0)
        self._serve_metrics(db)
        self._write_status()

    def _take_home(self) -> None:
        """The home folder, this process's alone until it ends."""
        home = self.settings.home
        in_use = f"another server uses {home} (--home FOLDER for a second one)"
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._stack.enter_context(lock(home / "lock", in_use))
        except OSError as error:
            raise StartError(
                f"cannot use the home folder {home}: {error.strerror} (--home FOLDER for another)"
            ) from None

    def _store(self, *, is_used: bool) -> BlobStore:
        """A folder is made once. Later, one that is missing is on a disk that is not mounted, and a store made in its
        place would be hidden when that is back."""
        try:
            return open_store(self.settings.store_url, create=not is_used)
        except (ValueError, StoreUnavailable) as error:
            raise StartError(f"{error} (--store URL)") from None

    async def _refuse_older_database(self, db: Database, store: BlobStore) -> None:
        """The store's mark says so where a backup was restored, or commits were lost. A store that is away is looked at
        later, before anything is deleted from it."""
        try:
            found = await asyncio.wait_for(Ownership(db, store).look(), _MARK_SECONDS)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("whose the store is could not be read: %s", error or "no answer")
            return
        if found.standing is Standing.NEWER:
            raise StartError(
                f"{found.why}: it has lost commits, or is an older backup. Restore a newer backup, or continue with "
                'the database as it is: `mvpctl server adopt-store`; docs/operate.md, "Restore a backup", has the steps'
            )

    async def _executor(self) -> Executor:
        settings = self.settings
        executor: Executor
        if settings.executor == "local":
            executor = LocalExecutor(settings.home / "processes")
            self.executor_text = "local processes"
        elif settings.ray_address:
            try:
                executor = RayExecutor(settings.ray_address, token=os.environ.get("RAY_AUTH_TOKEN"))
            except ValueError as error:
                raise StartError(f"{error} (--ray-address URL)") from None
            self.executor_text = f"Ray at {settings.ray_address}"
        else:
            ray = EmbeddedRay(settings.home)
            self._stack.push_async_callback(asyncio.to_thread, ray.stop)
            try:
                await asyncio.to_thread(ray.start, self._unwanted)
            except EmbeddedRayFailed as error:
                raise StartError(str(error)) from None
            self.roots = replace(self.roots, private=(*self.roots.private, ray.folder))
            executor = ray.executor()
            self.executor_text = f"a Ray of its own at {ray.address}"
        self._stack.callback(executor.close)
        return executor

    def _handlers(self, db: Database) -> tuple[auth.Authenticator, Handlers, Handlers]:
        """What the calls of clients and of workers go through, and what knows the tokens of the first."""
        settings = self.settings
        required = ports.is_auth_required(settings)
        self._streams = Streams(settings.max_streams or (_STREAMS if required else None))
        authenticator = auth.Authenticator(db)
        rate = settings.rate_limit or (_RATE if required else None)
        limiter = RateLimiter(rate, settings.rate_burst or max(1.0, _BURST_SECONDS * rate)) if rate else None
        for_clients = Handlers(authenticator if required else None, limiter, self._streams, metrics.call_ended)
        for_workers = Handlers(streams=self._streams, observe=metrics.call_ended)
        return authenticator, for_clients, for_workers

    def _listen(self, clients: Handlers, workers: Handlers) -> tuple[grpc.aio.Server, grpc.aio.Server]:
        """The servers of both ports, the workers' first."""
        settings = self.settings
        client_tls, worker_tls = ports.tls_files(settings) or (None, None)
        listen = partial(
            ports.listen,
            allow_remote=settings.allow_remote,
            max_connections=settings.max_connections or descriptors.connections(),
        )
        for_clients, self.address = listen(settings.address, "--address", client_tls, clients)
        for_workers, self.worker_address = listen(settings.worker_address, "--worker-address", worker_tls, workers)
        return for_workers, for_clients

    async def _add_health(self, db: Database, *handlers: Handlers) -> None:
        names = [service.full_name for service in (*_CONTRACT, *_WORKER_CONTRACT)]
        reads = Probe("database", lambda: db.read(overview.ping), self._problems)
        writes = Probe("database writes", lambda: db.write(overview.write), self._problems, fresh=_WRITE_SECONDS)
        self._health = Health(names, (reads, writes), self._problems)
        await self._health.start()
        for each in handlers:
            health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, each)

    def _serve_metrics(self, db: Database) -> None:
        address, remote = self.settings.metrics_address, self.settings.allow_remote
        if not address:
            return
        ports.check_reach(address, _METRICS, allow_remote=remote)
        host, _, wanted = address.rpartition(":")
        live = Probe("database", lambda: db.read(overview.overview, overview.LIVE_JOBS), self._problems)
        collector = scrape.OverviewCollector(live, asyncio.get_running_loop())
        try:
            port, stop = scrape.serve(host.strip("[]"), int(wanted), collector)
        except OSError as error:
            raise StartError(
                f"{_METRICS} must be an address of this machine with a free port, got {address}: {error.strerror}"
            ) from None
        self._stack.push_async_callback(asyncio.to_thread, stop)
        self.metrics_address = f"{host}:{port}"

    async def _stop(self, *servers: grpc.aio.Server) -> None:
        """Lets calls under way end, for a while; at once where that is wanted."""
        ending: list[asyncio.Task[None]] = [asyncio.create_task(server.stop(_STOP_GRACE)) for server in servers]
        hurry = asyncio.create_task(self._hurry.wait())
        for task in ending:
            await asyncio.wait((task, hurry), return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        await asyncio.gather(*ending, *(server.stop(None) for server in servers))

    def _write_status(self) -> None:
        path = self.settings.home / STATUS_FILE
        draft = path.with_suffix(".tmp")
        ca = self.settings.tls_cert and (self.settings.worker_ca or self.settings.tls_cert)
        status = {
            "address": self.address,
            "worker_address": self.worker_address,
            "pid": os.getpid(),
            "ca": ca and str(ca),  # with TLS: what the server is known by
        }
        draft.unlink(missing_ok=True)
        with draft.open("x") as file:  # follows no link
            file.write(json.dumps(status) + "\n")
        draft.replace(path)
        self._stack.callback(path.unlink, missing_ok=True)
