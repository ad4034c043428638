"""The control plane as one object: how it starts, how it stops."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

from mvprune_service.api.access import auth, ports, rules
from mvprune_service.api.access.handlers import Handlers
from mvprune_service.api.access.tls import BadCertificate
from mvprune_service.assembly import readable
from mvprune_service.assembly.components import CONTRACT, Components
from mvprune_service.assembly.resources import Resources
from mvprune_service.assembly.startup import Sequence, StartError, Step
from mvprune_service.changes import Changes
from mvprune_service.config import Settings
from mvprune_service.control.loop import Loop
from mvprune_service.db.engine import opening
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.executors.base import ExecutorNotOpened
from mvprune_service.issuers import BadIssuers
from mvprune_service.lock import CannotLock
from mvprune_service.observability import scrape
from mvprune_service.secret import BadKey

STATUS_FILE = "server.json"
_STOP_GRACE = 3.0
_HEALTH_SECONDS = 1.0
_METRICS, _HTTP = "--metrics-address", "--http-address"
_CANNOT_START = (
    rules.MissingRule,
    auth.BadOperatorToken,
    BadIssuers,
    ports.PortError,
    BadCertificate,
    BadKey,
    CannotLock,
    ExecutorNotOpened,
    opening.CannotOpen,
    readable.BadRoots,
)


class Service:
    """A control plane. `async with Service(settings) as service: …` opens its resources, builds its components, and
    starts them; leaving the block stops everything in reverse order.

    Args:
        start_cancelled: returns True once the start has been cancelled. A start that waits for a Ray of its own then
            raises StartCancelled.
    """

    components: Components

    def __init__(self, settings: Settings, start_cancelled: Callable[[], bool] = lambda: False) -> None:
        self.settings = settings
        self.resources = Resources(settings, start_cancelled)
        self.metrics_address = ""
        self.http_address = ""
        self._force_stop = asyncio.Event()
        self._running = AsyncExitStack()

    @property
    def address(self) -> str:
        """HOST:PORT of the clients' port."""
        return self.resources.address

    @property
    def worker_address(self) -> str:
        """HOST:PORT of the workers' port."""
        return self.resources.worker_address

    async def __aenter__(self) -> Self:
        try:
            await self._running.enter_async_context(self.resources.opening())
            self.components = Components.build(self.settings, self.resources)
            await self._running.enter_async_context(self._serving())
        except BaseException as error:
            await self._running.aclose()
            if isinstance(error, _CANNOT_START):
                raise StartError(str(error)) from None
            if isinstance(error, DatabaseUnavailable):
                raise StartError(f"the database became unavailable during the start ({error})") from None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def drain(self, seconds: float, force_stop: asyncio.Event) -> None:
        """Prepares the stop. Health reports NOT_SERVING, no queued job is started, and streams end with UNAVAILABLE.
        Other calls are answered for `seconds`, so that a load balancer can choose another server. `force_stop` ends
        that time, and the calls in progress."""
        self._force_stop = force_stop
        await self.components.health.drain()
        await self.components.loops.stop("scheduler", "dispatcher")
        self.components.streams.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(force_stop.wait(), seconds)

    def _serving(self) -> Sequence:
        """The steps that start the components."""
        return Sequence(
            Step("calls", self._answer_calls),
            Step("loops", self._run_loops),  # after the calls, so that workers can report before they are missed
            Step("health", self._report_health),  # SERVING only now
            Step("http", self._serve_http),
            Step("metrics", self._serve_metrics),
            Step("status file", self._write_status),  # last: local programs find a server by it
        )

    @asynccontextmanager
    async def _answer_calls(self) -> AsyncIterator[None]:
        parts, resources = self.components, self.resources
        await parts.health.start()
        servers = (resources.workers, resources.clients)
        for server, calls in zip(servers, (parts.workers, parts.clients), strict=True):
            server.add_generic_rpc_handlers((Handlers(calls),))
            await server.start()
        try:
            yield
        finally:
            await ports.stop(servers, _STOP_GRACE, self._force_stop)
            await parts.authenticator.close()
            await asyncio.to_thread(_close_all, parts.closing)

    @asynccontextmanager
    async def _run_loops(self) -> AsyncIterator[None]:
        for loop in self.components.schedule:
            self.components.loops.start(loop)
        try:
            yield
        finally:
            await self.components.loops.stop()

    @asynccontextmanager
    async def _report_health(self) -> AsyncIterator[None]:
        health = self.components.health
        await health.step()
        self.components.loops.start(Loop("health", health.step, Changes(), _HEALTH_SECONDS))
        try:
            yield
        finally:
            await self.components.loops.stop("health")

    @asynccontextmanager
    async def _serve_http(self) -> AsyncIterator[None]:
        settings, address = self.settings, self.settings.http_address
        if not address:
            yield
            return
        from mvprune_service.api.rest.app import RestApp  # the server starts faster without
        from mvprune_service.api.rest.server import serving

        tls, _ = ports.tls_files(settings) or (None, None)
        is_allowed = settings.allow_remote or tls is not None
        ports.check_reach(address, _HTTP, allow_remote=is_allowed, remedy="--tls-cert and --tls-key, or ")
        app = RestApp(self.components.clients, CONTRACT, is_open=not ports.is_auth_required(settings))
        async with AsyncExitStack() as stack:
            served = serving(app, address, tls, ports.max_connections(settings))
            try:
                self.http_address = await stack.enter_async_context(served)
            except OSError as error:
                raise StartError(
                    f"{_HTTP} must be an address of this machine with a free port, got {address}: {error.strerror}"
                ) from None
            yield

    @asynccontextmanager
    async def _serve_metrics(self) -> AsyncIterator[None]:
        address = self.settings.metrics_address
        if not address:
            yield
            return
        ports.check_reach(address, _METRICS, allow_remote=self.settings.allow_remote)
        host, _, wanted = address.rpartition(":")
        collector = scrape.GaugeCollector(self.components.gauges, asyncio.get_running_loop())
        try:
            port, stop = scrape.serve(host.strip("[]"), int(wanted), collector)
        except OSError as error:
            raise StartError(
                f"{_METRICS} must be an address of this machine with a free port, got {address}: {error.strerror}"
            ) from None
        self.metrics_address = f"{host}:{port}"
        try:
            yield
        finally:
            await asyncio.to_thread(stop)

    @asynccontextmanager
    async def _write_status(self) -> AsyncIterator[None]:
        settings, path = self.settings, self.settings.home / STATUS_FILE
        draft = path.with_suffix(".tmp")
        ca = settings.tls_cert and (settings.worker_ca or settings.tls_cert)
        status = {
            "address": self.address,
            "worker_address": self.worker_address,
            "pid": os.getpid(),
            "ca": ca and str(ca),  # with TLS: the certificates that identify the server
        }
        draft.unlink(missing_ok=True)
        with draft.open("x") as file:  # does not follow a link
            file.write(json.dumps(status) + "\n")
        draft.replace(path)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _close_all(closing: Iterable[Callable[[], None]]) -> None:
    for close in closing:
        close()
