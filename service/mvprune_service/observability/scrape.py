"""What Prometheus gets: the process's metrics, and gauges of what the database knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db.overview import Overview
from mvprune_service.observability.probes import Probe


class OverviewCollector(Collector):
    """Gauges of what the database knows. Collected in the scraper's thread; asked on the event loop."""

    def __init__(self, overview: Probe[Overview], loop: asyncio.AbstractEventLoop, clock: Clock = system_clock) -> None:
        self._overview = overview
        self._loop = loop
        self._clock = clock

    def describe(self) -> list[Metric]:
        """Nothing: else the registry would collect when it is registered, to learn the names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Without the database there is one gauge, and it is 0."""
        seen = asyncio.run_coroutine_threadsafe(self._overview.get(), self._loop).result()
        yield GaugeMetricFamily("mvprune_database_up", "Whether the database answers", value=float(seen is not None))
        if seen is None:
            return
        jobs = GaugeMetricFamily("mvprune_jobs", "Jobs that have not ended", labels=["state"])
        for state, count in seen.jobs.items():
            jobs.add_metric([state], count)
        yield jobs
        for name, text, since in (
            (
                "mvprune_queue_oldest_age_seconds",
                "Longest wait in the queue",
                seen.oldest_queued_us,
            ),
            ("mvprune_lease_lag_seconds", "Age of the oldest heartbeat of a running attempt", seen.oldest_heartbeat_us),
        ):
            yield GaugeMetricFamily(name, text, value=0.0 if since is None else (self._clock() - since) / SECOND)


def serve(host: str, port: int, collector: Collector) -> tuple[int, Callable[[], None]]:
    """Answers GET /metrics on a thread of its own; returns the port and what stops it. Raises OSError."""
    registry = CollectorRegistry()
    registry.register(REGISTRY)  # a registry is a collector too
    registry.register(collector)
    server, thread = start_http_server(port, host, registry)

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, stop
