"""Logs, metrics and traces, each by itself."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest
from prometheus_client import REGISTRY

from mvprune.common import tracing
from mvprune.v1 import admin_pb2, artifact_pb2, catalog_pb2, job_pb2, worker_pb2
from mvprune_service.db import leases, lifecycle, overview
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure
from mvprune_service.ids import JobName
from mvprune_service.observability import logs, traces

from .conftest import Jobs, TestClock

SECRETS = [
    "authorization: Bearer {}",
    "('authorization', 'Bearer {}')",
    "token mvp_{} is bad",
    "https://s3/b/k?X-Amz-Signature={}&x=1",
    "https://s3/b/k?x=1&X-Amz-Credential={}",
    "https://s3/b/k?X-Amz-Security-Token={}",
    "x-amz-security-token:{}",
    "headers={{'X-Amz-Security-Token': b'{}', 'X-Amz-Date': b'0'}}",
    "AWS4-HMAC-SHA256 Credential={}, SignedHeaders=host, Signature=0",
    "AWS4-HMAC-SHA256 Credential=0, SignedHeaders=host, Signature={}",
    "postgresql+psycopg://mvprune:{}@db:5432/mvprune",
    "env {{'MVPRUNE_ATTEMPT_SECRET': '{}'}}",
    "MVPRUNE_ATTEMPT_SECRET={}",
]


@pytest.mark.parametrize("line", SECRETS)
def test_no_line_carries_a_credential(line: str) -> None:
    text = logs.redact(line.format("s3cr3t-Value_0"))
    assert "s3cr3t" not in text
    assert "[redacted]" in text
    assert logs.redact(text) == text


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(("level", "told"), [("debug", ["info"]), ("error", [])])
def test_what_the_s3_client_says_of_its_requests_is_not_for_logs(
    level: str, told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Signatures and session tokens, at level debug."""
    logs.configure(level, "text")
    for name in ("debug", "info"):
        getattr(logging.getLogger("botocore.auth"), name)(name)
    assert [line.rpartition(" ")[2] for line in capsys.readouterr().err.splitlines()] == told


def test_what_is_no_credential_stays() -> None:
    line = "projects/p/jobs/mvp-1 at http://127.0.0.1:8265/api?x=1 by mvprune_service of user@host, signature ok"
    assert logs.redact(line) == line


def test_the_form_of_a_token_is_no_token() -> None:
    line = "the file must hold mvp_ID_SECRET, got mvp_ID_SECRETS and mvp_id_secret-0123456789012345678901234567"
    assert logs.redact(line) == "the file must hold mvp_ID_SECRET, got [redacted] and [redacted]"


def record(message: str, *args: Any, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("test").makeRecord("test", logging.INFO, "f", 1, message, args, None, extra=extra)


LEASE = worker_pb2.Lease(attempt="projects/p/jobs/j/attempts/2")


@pytest.mark.parametrize(
    ("subject", "names"),
    [
        (None, {}),
        (job_pb2.GetJobRequest(name="projects/p/jobs/j"), {"job": "projects/p/jobs/j"}),
        (job_pb2.ListJobEventsRequest(parent="projects/p/jobs/j"), {"job": "projects/p/jobs/j"}),
        (worker_pb2.HeartbeatRequest(lease=LEASE), {"job": "projects/p/jobs/j", "attempt": LEASE.attempt}),
        (job_pb2.GetJobRequest(name="Bearer of\nnews"), {}),
    ],
)
def test_lines_carry_the_names_that_they_are_about(subject: Any, names: dict[str, str]) -> None:
    token = logs.SUBJECT.set(subject)
    try:
        fields = json.loads(logs.JsonFormatter().format(record("%s\nis said", "much")))
    finally:
        logs.SUBJECT.reset(token)
    assert fields.pop("time")
    assert fields == {"level": "INFO", "logger": "test", "message": "much\nis said", **names}


def test_all_requests_can_be_looked_into() -> None:
    for file in (job_pb2, artifact_pb2, catalog_pb2, admin_pb2, worker_pb2):
        for name in file.DESCRIPTOR.message_types_by_name:
            logs.SUBJECT.set(getattr(file, name)())
            json.loads(logs.JsonFormatter().format(record("hello")))
    logs.SUBJECT.set(None)


def test_exceptions_are_redacted() -> None:
    try:
        raise ValueError("Bearer s3cr3t")
    except ValueError:
        line = record("failed")
        line.exc_info = sys.exc_info()
    for formatter in (logs.JsonFormatter(), logs.TextFormatter()):
        text = formatter.format(line)
        assert "ValueError" in text
        assert "s3cr3t" not in text


async def test_changes_of_a_job_are_logged_with_its_names(
    db: Database, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    uid = await jobs.create("a")
    await db.write(leases.schedule, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=1)
    told = [(line.getMessage(), line.about.fields) for line in caplog.records if hasattr(line, "about")]
    job = {"job": "projects/p/jobs/a", "uid": uid}
    assert told == [
        ("created by test", job),
        ("QUEUED -> STARTING by scheduler", job | {"attempt": "projects/p/jobs/a/attempts/1"}),
    ]


def attempts(state: str, reason: str) -> float:
    return REGISTRY.get_sample_value("mvprune_attempts_total", {"state": state, "reason": reason}) or 0.0


async def test_attempts_are_counted_once_they_are_committed(db: Database, jobs: Jobs) -> None:
    before = attempts("FAILED", "NAN_LOSS")
    uid = await jobs.create("a")
    await db.write(leases.schedule, uid, Reserved(1, 0, 0), executor="x", start_timeout_us=1)
    live = await jobs.live("a")
    fence = Fence(live.name, live.attempt.fencing_token)

    def rolled_back(tx: Tx) -> None:
        leases.fail_attempt(tx, fence, Failure(FailureReason.NAN_LOSS), actor="test")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await db.write(rolled_back)
    assert attempts("FAILED", "NAN_LOSS") == before
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.NAN_LOSS), actor="test")
    assert attempts("FAILED", "NAN_LOSS") == before + 1


async def test_jobs_are_counted_when_they_have_ended_by_task_and_reason(db: Database, jobs: Jobs) -> None:
    def ended(state: str, reason: str) -> float:
        labels = {"task": "sst2", "state": state, "reason": reason}
        return REGISTRY.get_sample_value("mvprune_jobs_finished_total", labels) or 0.0

    failed, cancelled = ended("FAILED", "MAX_QUEUE_TIME"), ended("CANCELLED", "")
    for name in ("a", "b"):
        await jobs.create(name)

    def end(tx: Tx, name: str) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", name))
        assert job is not None
        if name == "a":
            lifecycle.fail(tx, job, FailureReason.MAX_QUEUE_TIME, actor="test")
        else:
            lifecycle.cancel(tx, job, reason="", grace_us=0, actor="test")

    await db.write(end, "a")
    assert (ended("FAILED", "MAX_QUEUE_TIME"), ended("CANCELLED", "")) == (failed + 1, cancelled)
    await db.write(end, "b")
    assert (ended("FAILED", "MAX_QUEUE_TIME"), ended("CANCELLED", "")) == (failed + 1, cancelled + 1)


async def test_the_overview_counts_what_is_live(db: Database, jobs: Jobs, clock: TestClock) -> None:
    empty = await db.read(overview.overview, overview.LIVE_JOBS)
    assert (set(empty.jobs.values()), empty.oldest_queued_us, empty.oldest_heartbeat_us) == ({0}, None, None)
    first = clock.now
    await jobs.create("a", policy=job_pb2.ExecutionPolicy(priority=50))
    clock.pass_seconds(10)
    uid = await jobs.create("b")
    seen = await db.read(overview.overview, overview.LIVE_JOBS)
    assert seen.oldest_queued_us is not None
    assert abs(seen.oldest_queued_us - first) < 100, "a priority makes nobody older"
    await db.write(leases.schedule, uid, Reserved(1.5, 0.5, 7), executor="x", start_timeout_us=1)
    live = await jobs.live("b")
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=1)
    seen = await db.read(overview.overview, list(JobState))
    assert {state: count for state, count in seen.jobs.items() if count} == {"QUEUED": 1, "RUNNING": 1}
    assert set(seen.jobs) == set(JobState)
    assert (seen.live_attempts, seen.cpus, seen.gpus, seen.memory_bytes) == (1, 1.5, 0.5, 7)
    assert seen.oldest_heartbeat_us == (await jobs.live("b")).attempt.heartbeat_us


async def test_a_job_keeps_the_trace_of_the_call_that_made_it(db: Database, jobs: Jobs) -> None:
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    spec = job_pb2.CompressionSpec(model="m", task="sst2")
    new = lifecycle.NewJob("p", "a", spec, job_pb2.ExecutionPolicy(max_attempts=1), creator="c")
    job = await db.write(lifecycle.create, new, actor="c", details={"traceparent": parent})
    assert await db.read(traces.of_job, job.uid) == parent
    assert await db.read(traces.of_job, await jobs.create("b")) == ""


def test_spans_of_one_parent_share_its_trace() -> None:
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    tracing.start("test", SimpleSpanProcessor(exporter))
    try:
        with tracing.span("submit", traceparent := f"00-{'a' * 32}-{'b' * 16}-01") as submitted:
            assert submitted[:35] == traceparent[:35]
        with pytest.raises(ZeroDivisionError), tracing.span("run", submitted, attempt=3), tracing.span("upload"):
            raise ZeroDivisionError
        spans = {span.name: span for span in exporter.get_finished_spans()}
    finally:
        tracing.stop()
    assert {span.context.trace_id for span in spans.values()} == {int("a" * 32, 16)}
    assert spans["run"].parent.span_id == spans["submit"].context.span_id
    assert spans["upload"].parent.span_id == spans["run"].context.span_id
    assert spans["run"].attributes == {"mvprune.attempt": 3}
    assert not spans["upload"].status.is_ok
    with tracing.span("off", traceparent) as passed:
        assert passed == traceparent


@pytest.mark.slow
@pytest.mark.parametrize("module", ["mvprune_service.assembly.running", "mvprune_workers.supervisor", "mvprune"])
def test_tracing_costs_nothing_unless_it_is_asked_for(module: str) -> None:
    code = (
        f"import sys, {module}; from mvprune.common import tracing; tracing.start('x')\n"
        "with tracing.span('y'): pass\n"
        "assert 'opentelemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
