"""Metrics for Prometheus: the process's own, and gauges of what the database, the executor and the store answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from threading import BoundedSemaphore, Thread, Timer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db.overview import Overview
from mvprune_service.db.quarantine import Quarantined
from mvprune_service.executors.base import Capacity
from mvprune_service.observability.probes import Probe

_CONNECTIONS = 16  # of scrapers, at a time
_SECONDS = 5.0  # that one may take


@dataclass(frozen=True)
class Gauges:
    """The sources of a scrape."""

    overview: Probe[Overview]
    capacity: Probe[Capacity]
    quarantine: Probe[Quarantined]
    store: Probe[bool]

    async def answers(self) -> tuple[Overview | None, Capacity | None, Quarantined | None, bool]:
        """The database's counts, the executor's capacity, the quarantine (None: no answer), and whether the
        store answers."""
        seen, capacity, garbage, stored = await asyncio.gather(
            self.overview.get(), self.capacity.get(), self.quarantine.get(), self.store.get()
        )
        return seen, capacity, garbage, stored is not None


class GaugeCollector(Collector):
    """Gauges of what the database, the executor and the store answer. Collected in the scraper's thread; asked on the
    event loop."""

    def __init__(self, gauges: Gauges, loop: asyncio.AbstractEventLoop, clock: Clock = system_clock) -> None:
        self._gauges = gauges
        self._loop = loop
        self._clock = clock

    def describe(self) -> list[Metric]:
        """Nothing: else the registry would collect when it is registered, to learn the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Of a part that does not answer there is one gauge, and it is 0."""
        asked = asyncio.run_coroutine_threadsafe(self._gauges.answers(), self._loop)
        seen, capacity, garbage, has_store = asked.result()
        for part, is_up in (("database", seen is not None), ("executor", capacity is not None), ("store", has_store)):
            yield GaugeMetricFamily(f"mvprune_{part}_up", f"Whether the {part} answers", value=float(is_up))
        if capacity is not None:
            yield from _resources("capacity", "of all nodes that run workers", capacity)
        if garbage is not None:
            for name, text, value in (
                ("objects", "Objects of the store that nothing refers to", garbage.objects),
                ("artifacts", "Artifacts that nothing refers to", garbage.artifacts),
                ("bytes", "Bytes of objects of the store that nothing refers to", garbage.size_bytes),
            ):
                yield GaugeMetricFamily(f"mvprune_quarantine_{name}", text, value=value)
        if seen is None:
            return
        yield from _resources("reserved", "reserved for attempts", seen)
        jobs = GaugeMetricFamily("mvprune_jobs", "Jobs that have not ended", labels=["state"])
        for state, count in seen.jobs.items():
            jobs.add_metric([state], count)
        yield jobs
        yield GaugeMetricFamily(
            "mvprune_logs_waiting", "Logs of ended attempts that wait to be moved to the store", value=seen.waiting_logs
        )
        for name, text, since in (
            ("mvprune_queue_oldest_age_seconds", "Longest wait in the queue", seen.oldest_queued_us),
            ("mvprune_lease_lag_seconds", "Age of the oldest heartbeat of a running attempt", seen.oldest_heartbeat_us),
        ):
            yield GaugeMetricFamily(name, text, value=0.0 if since is None else (self._clock() - since) / SECOND)


def _resources(name: str, of: str, amounts: Capacity | Overview) -> Iterator[Metric]:
    yield GaugeMetricFamily(f"mvprune_{name}_cpus", f"CPUs {of}", value=amounts.cpus)
    yield GaugeMetricFamily(f"mvprune_{name}_gpus", f"GPUs {of}", value=amounts.gpus)
    yield GaugeMetricFamily(f"mvprune_{name}_memory_bytes", f"Memory {of}", value=amounts.memory_bytes)


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each connection, for a few at a time and for seconds only: a port that is open to anyone must not
    take the descriptors and threads of the server."""

    daemon_threads = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._slots = BoundedSemaphore(_CONNECTIONS)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._slots.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        deadline = Timer(_SECONDS, _cut, (request,))  # not a timeout of the socket: each byte would renew it
        deadline.daemon = True
        deadline.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            deadline.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: the scraper has gone."""


class _SilentHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: scrapes are no news."""


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):  # it has just ended
        connection.shutdown(socket.SHUT_RDWR)


def serve(host: str, port: int, collector: Collector) -> tuple[int, Callable[[], None]]:
    """Answers GET /metrics on a thread of its own; returns the port and what stops it. Raises OSError."""
    registry = CollectorRegistry()
    registry.register(REGISTRY)  # a registry is a collector too
    registry.register(collector)
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    kind = type("Server", (_Server,), {"address_family": family})
    server: WSGIServer = make_server(str(address[0]), port, make_wsgi_app(registry), kind, _SilentHandler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
