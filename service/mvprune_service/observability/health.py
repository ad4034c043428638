"""grpc.health.v1: whether this server can do its work now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from grpc_health.v1 import health, health_pb2

from mvprune_service.observability.probes import Probe, Problems

log = logging.getLogger(__name__)

LIVENESS = "liveness"
PATIENCE_SECONDS = 3.0
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """NOT_SERVING until the first step; SERVING while the `database` answers all that it is asked, a few seconds aside;
    NOT_SERVING for good once the server drains. `servicer` is for every port.

    The service `liveness` is SERVING for as long as the process answers: a restart would not help a server whose
    database is away, or that drains."""

    def __init__(self, services: Iterable[str], database: Sequence[Probe[Any]], problems: Problems) -> None:
        self.servicer = health.aio.HealthServicer()
        self._services = ("", *services)
        self._database = database
        self._problems = problems
        self._serving: bool | None = None
        self._is_draining = False

    async def step(self) -> None:
        """Looks at the database."""
        await asyncio.gather(*(probe.get() for probe in self._database))
        away = max(self._problems.seconds(probe.part) for probe in self._database)
        await self._set(away < PATIENCE_SECONDS)

    async def drain(self) -> None:
        """NOT_SERVING from now on."""
        await self._set(False)
        self._is_draining = True

    async def start(self) -> None:
        """NOT_SERVING: the server is not ready yet. It is alive."""
        await self.servicer.set(LIVENESS, _SERVING)
        await self._set(False)

    async def _set(self, serving: bool) -> None:
        if serving == self._serving or self._is_draining:
            return
        if self._serving is not None:
            log.info("health: %s", "SERVING" if serving else "NOT_SERVING")
        self._serving = serving
        for service in self._services:
            await self.servicer.set(service, _SERVING if serving else _NOT_SERVING)
