"""OpenTelemetry spans, where the extra `otel` is installed and OTEL_EXPORTER_OTLP_ENDPOINT is set; nothing elsewhere.

A job is one trace: the server and its workers pass the W3C `traceparent` of the call that made the job along.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACEPARENT = "traceparent"
_SEND_SECONDS = 3.0

_provider: TracerProvider | None = None


def start(component: str, processor: SpanProcessor | None = None) -> None:
    """Sends spans from now on, if it is asked for: to `processor`, else to the collector that OTEL_* names.

    Args:
        component: the name of the service, unless OTEL_SERVICE_NAME is set.
    """
    global _provider
    if processor is None and not os.environ.get(ENDPOINT):
        return
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        if processor is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            processor = BatchSpanProcessor(OTLPSpanExporter())
    except ModuleNotFoundError:
        print(f"{ENDPOINT} is set, but traces need: pip install 'mvprune[otel]'", file=sys.stderr)
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or component
    _provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    _provider.add_span_processor(processor)


def stop() -> None:
    """Sends what is left, for a few seconds at most."""
    global _provider
    provider, _provider = _provider, None
    if provider is not None:
        # On a thread: a collector that is away is tried for longer than it is told to be.
        sending = threading.Thread(target=provider.shutdown, daemon=True)
        sending.start()
        sending.join(_SEND_SECONDS)


@contextmanager
def span(name: str, parent: str = "", **attributes: str | int | float) -> Iterator[str]:
    """A span around the block, which an exception marks as failed. Yields its traceparent, for those that go on with
    it elsewhere; without tracing, that of the parent.

    Args:
        parent: a traceparent; empty: the span that is open here, else none.
        attributes: what is known of it.
    """
    if _provider is None:
        yield parent
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    propagator = TraceContextTextMapPropagator()
    context = propagator.extract({TRACEPARENT: parent}) if parent else None
    named = {f"mvprune.{key}": value for key, value in attributes.items()}
    with _provider.get_tracer("mvprune").start_as_current_span(name, context, attributes=named):
        carrier: dict[str, str] = {}
        propagator.inject(carrier)
        yield carrier.get(TRACEPARENT, "")
