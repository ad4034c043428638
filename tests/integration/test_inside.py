"""A real job on a server that logs all it can: its trace is whole, its lines have names, no secret is told."""

from __future__ import annotations

import gzip
import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from mvprune import Client
from mvprune_service.secret import attempt_secret, load_key

from ..conftest import Tiny, server_path
from ..waiting import PATIENCE, until
from .servers import Server

SPANS = {"submit", "schedule", "attempt", "claim", "train", "upload", "report", "finalize", "fetch"}


class Collector(ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Any] = []  # (service, span)
        self.credentials: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.credentials.add(self.headers["authorization"])
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.server.spans += [(named["service.name"], span) for span in scope.spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            collector.shutdown()


@pytest.mark.slow
def test_a_job_seen_from_inside(tmp_path: Path, tiny: Tiny) -> None:
    server = Server(tmp_path / "home")
    with collecting() as collector:
        try:
            (headers := tmp_path / "headers").write_text("authorization=Bearer%20c0llector\n")
            env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
            env["OTEL_EXPORTER_OTLP_HEADERS_FILE"] = str(headers)
            options = {"models": tiny.models, "roots": tiny.train.parent, "drain_seconds": 0}
            process = server.start(env, log_level="debug", log_format="json", auth="required", **options)
            token = (server.home / "operator-token").read_text().strip()
            with Client(server.address, token=token) as client:
                job = client.submit(
                    model="tiny-bert",
                    task="text-classification",
                    train=server_path(tiny.train),
                    validation=server_path(tiny.validation),
                    density=0.1,
                    max_steps=30,
                    cpus=1,
                ).wait(timeout=PATIENCE)
                (attempt,) = client.attempts(job)
                traceparent = next(client.events(job)).details["traceparent"]
                logged_by_worker = b"".join(client.logs(job))
            process.terminate()
            assert process.wait(PATIENCE) == 0
            until(lambda: {span.name for _, span in collector.spans} >= SPANS, "all spans came")
        finally:
            server.close()

    spans = {span.name: (service, span) for service, span in collector.spans}
    assert {span.trace_id.hex() for _, span in spans.values()} == {traceparent.split("-")[1]}
    assert spans["upload"][1].parent_span_id == spans["attempt"][1].span_id
    assert spans["attempt"][1].parent_span_id == spans["schedule"][1].span_id
    assert spans["finalize"][1].parent_span_id == spans["submit"][1].span_id
    assert (spans["train"][0], spans["finalize"][0]) == ("mvprune-worker", "mvprune-server")
    assert spans["train"][1].end_time_unix_nano <= spans["upload"][1].start_time_unix_nano

    assert collector.credentials == {"Bearer c0llector"}, "of the server and of the worker"
    log = server.log()
    assert "c0llector" not in log + logged_by_worker.decode()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    about = [line for line in lines if line.get("job") == job.name and line["logger"] == "mvprune_service.db.lifecycle"]
    assert [line["message"].partition(" by ")[0] for line in about] == [
        "created",
        "QUEUED -> STARTING",
        "STARTING -> RUNNING",
        "RUNNING -> FINALIZING",
        "FINALIZING -> SUCCEEDED",
    ]
    assert {line.get("attempt") for line in about[1:]} == {attempt.name}
    assert {line["uid"] for line in about} == {job.uid}
    assert {line["level"] for line in lines} >= {"DEBUG", "INFO"}
    assert not [line for line in lines if "exception" in line]

    key = load_key(server.home / "key")
    with closing(sqlite3.connect(server.home / "mvprune.sqlite")) as database:
        ((fencing_token,),) = database.execute("SELECT fencing_token FROM attempts")
    secrets = [token, token.split("_", 2)[2], key.hex(), attempt_secret(key, attempt.name, fencing_token)]
    for secret in secrets:
        assert secret not in log
        assert secret.encode() not in logged_by_worker
