"""What a server measures of itself, as Prometheus reads it from GET /metrics.

With several workers, each writes its numbers into files of the folder that PROMETHEUS_MULTIPROC_DIR names, and the one
that is asked adds them up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mvprune.serving.workers import FOLDER

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_INPUTS = (1, 2, 4, 8, 16, 32, 64, 128)
_OTHER = "other"  # the path of requests for which there is no endpoint


class Metrics:
    """The numbers of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        given: dict[str, Any] = {"namespace": "mvprune", "subsystem": "serve", "registry": self._registry}
        self.requests = Counter("requests", "Requests that were answered", ("path", "status"), **given)
        self.seconds = Histogram(
            "request_seconds", "From a request's head to the end of its answer", ("path",), buckets=_SECONDS, **given
        )
        self.batch = Histogram("batch_inputs", "Inputs that were computed together", buckets=_INPUTS, **given)
        self.batch_seconds = Histogram("batch_seconds", "Time of the model for them", buckets=_SECONDS, **given)
        self.waiting = Gauge("waiting", "Inputs, or texts to write, that wait", multiprocess_mode="livesum", **given)
        self.running = Gauge("running", "Texts that are being written", multiprocess_mode="livesum", **given)

    def response(self) -> Response:
        """The answer of GET /metrics."""
        registry = self._registry
        if FOLDER in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


class Measured:
    """Counts and times the requests of an application.

    Args:
        app: answers them.
        metrics: has the numbers.
        paths: of endpoints, by their functions.
        look: notes what waits; it is called with each request, before and after.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: Mapping[Any, str], look: Callable[[], None]) -> None:
        self._app, self._metrics, self._paths, self._look = app, metrics, paths, look

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._look()
        try:
            await self._app(scope, receive, noted)
        finally:
            path = self._paths.get(scope.get("endpoint"), _OTHER)
            self._metrics.requests.labels(path, status).inc()
            self._metrics.seconds.labels(path).observe(time.perf_counter() - begin)
            self._look()
