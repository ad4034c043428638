"""OpenTelemetry spans, where the extra `otel` is installed and OTEL_EXPORTER_OTLP_ENDPOINT is set; nothing elsewhere.

A job is one trace: the server and its workers pass the W3C `traceparent` of the call that made the job along.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mvprune.common.files import read_secret

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
HEADERS_FILE = "OTEL_EXPORTER_OTLP_HEADERS_FILE"
_HEADERS = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # its name, of HTTP
TRACEPARENT = "traceparent"
_SEND_SECONDS = 3.0

_provider: TracerProvider | None = None


class BadSetting(ValueError):
    """A variable is wrong; the text names it and shows no secret."""


def start(component: str, processor: SpanProcessor | None = None) -> None:
    """Sends spans from now on, if it is asked for: to `processor`, else to the collector that OTEL_* names.

    Args:
        component: the name of the service, unless OTEL_SERVICE_NAME is set.

    Raises:
        BadSetting: the file with the collector's headers cannot be used.
    """
    global _provider
    if processor is None and not os.environ.get(ENDPOINT):
        return
    headers = _headers() if processor is None else None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        if processor is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            processor = BatchSpanProcessor(OTLPSpanExporter(headers=headers))
    except ModuleNotFoundError:
        print(f"{ENDPOINT} is set, but traces need: pip install 'mvprune[otel]'", file=sys.stderr)
        return
    name = os.environ.get("OTEL_SERVICE_NAME") or component
    _provider = TracerProvider(resource=Resource.create({"service.name": name}), shutdown_on_exit=False)
    _provider.add_span_processor(processor)


def _headers() -> dict[str, str] | None:
    """The headers in the file that is named; None without one: the exporter then reads the usual variables."""
    path = os.environ.get(HEADERS_FILE)
    if not path:
        return None
    if other := next((name for name in _HEADERS if os.environ.get(name)), None):
        raise BadSetting(f"{HEADERS_FILE} must not be set beside {other}, got both; unset one of the two variables")
    try:
        text = read_secret(Path(path))
    except ValueError as error:
        raise BadSetting(f"{HEADERS_FILE} {error}") from None
    found = {}
    for number, item in enumerate(text.split(","), 1):
        name, is_header, value = item.partition("=")
        if not is_header or not _HEADER.fullmatch(name.strip()):
            rule = f"must be a file with NAME=VALUE,NAME=VALUE, got {path!r}, whose item {number} is none"
            raise BadSetting(f"{HEADERS_FILE} {rule}")
        found[name.strip().lower()] = unquote(value.strip())
    return found


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
