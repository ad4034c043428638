"""Every RPC of every service on both ports, with messages that are made from the descriptors: each is answered with OK
or a status of the documented set, in time, and afterwards the server serves and all that is stored can be read.

MVPRUNE_FUZZ_EXAMPLES sets how many messages each RPC gets; they are then others each time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import math
import os
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import create_engine, insert, select

from mvprune.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    artifact_pb2,
    artifact_pb2_grpc,
    catalog_pb2,
    job_pb2,
    job_pb2_grpc,
    worker_pb2,
)
from mvprune_service.config import Settings
from mvprune_service.db.models import ARTIFACTS, JOBS
from mvprune_service.executors.base import Executor
from mvprune_service.secret import attempt_secret, load_key
from mvprune_service.service import Service
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import blob_key, manifest_key

from ..unit.service.conftest import ScriptedExecutor
from ..unit.test_model_folders import write_model

GIVEN = os.environ.get("MVPRUNE_FUZZ_EXAMPLES")
EXAMPLES = int(GIVEN or 100)
CALL_SECONDS, STREAM_SECONDS = 20.0, 0.1
DOCUMENTED = {
    grpc.StatusCode[name]
    for name in (
        *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED"),
        *("PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE"),
    )
}
JOB_IDS = [f"fuzz-{number}" for number in range(6)]
LEASE = "projects/p/jobs/fuzz-0/attempts/1"
ARTIFACT = hashlib.sha256(b"{}").hexdigest()
CONTRACT = [  # workers first, while there are attempts
    method
    for file in (worker_pb2, job_pb2, artifact_pb2, catalog_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
# Streams that say nothing until something happens.
SILENT = {"WatchJob", "FollowLogs"}


class IdleExecutor(ScriptedExecutor):
    """Takes every job and does nothing: what happens to attempts is up to the messages."""


class FuzzedService(Service):
    """A server on an executor that does nothing."""

    async def _executor(self) -> Executor:
        self.executor_text = "nothing"
        return IdleExecutor()


@dataclass
class Target:
    """A running server, and how it answered so far."""

    service: Service
    clients: grpc.Channel
    workers: grpc.Channel
    valid: job_pb2.Job
    token: int
    secret: str
    answers: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "data").mkdir()
    write_model(folder / "models" / "small")
    rows = [{"text": f"word{number}", "label": str(number % 2)} for number in range(8)]
    train = folder / "data" / "train.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = Settings(
        home=folder / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        executor="local",
        models=folder / "models",
        roots=(folder / "data",),
        lease_seconds=3600,
    )
    valid = job_pb2.Job(
        spec={
            "model": "small",
            "task": "text-classification",
            "dataset": {"train": str(train), "validation": str(train)},
            "movement": {},
            "target_density": 0.1,
            "training": {"max_steps": 10},
        },
        policy={"resources": {"cpus": 0.5}},
    )
    ready, stopping = threading.Event(), threading.Event()
    service = FuzzedService(given)

    async def serve() -> None:
        async with service:
            ready.set()
            await asyncio.to_thread(stopping.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    add_artifact(given)
    with grpc.insecure_channel(service.address) as clients, grpc.insecure_channel(service.worker_address) as workers:
        stub = job_pb2_grpc.JobServiceStub(clients)
        for job_id in JOB_IDS:
            stub.CreateJob(job_pb2.CreateJobRequest(parent="projects/p", job_id=job_id, job=valid))
        for message in stub.WatchJob(job_pb2.WatchJobRequest(name="projects/p/jobs/fuzz-0")):
            if message.job.attempt:
                break
        with create_engine(given.database).connect() as conn:
            token = conn.execute(select(JOBS.c.fencing_token).where(JOBS.c.job_id == JOB_IDS[0])).scalar_one()
        secret = attempt_secret(load_key(folder / "home" / "key"), LEASE, token)
        yield Target(service, clients, workers, valid, token, secret)
    stopping.set()
    thread.join(30)


def add_artifact(given: Settings) -> None:
    """An artifact of one file, without a job."""
    content, store = b"abc", open_store(given.store_url)
    digest = hashlib.sha256(content).hexdigest()
    store.put(blob_key(digest), content)
    store.put(manifest_key(ARTIFACT), b"{}")
    manifest = {
        "files": [{"path": "weights", "size_bytes": len(content), "sha256": digest, "media_type": ""}],
        "metrics": {"eval/f1": 0.5},
        "primary_metric": "f1",
        "accounting": {"density": 0.1},
    }
    values = {"project": "p", "sha256": ARTIFACT, "attempt": 1, "manifest_bytes": 2, "manifest": manifest}
    engine = create_engine(given.database)
    with engine.begin() as conn:
        conn.execute(insert(ARTIFACTS).values(**values, create_us=1))
    engine.dispose()


# Messages from descriptors

NAMES = [
    "projects/p",
    "projects/-",
    "projects/none",
    LEASE,
    "projects/p/jobs/fuzz-1/attempts/-",
    "projects/p/jobs/fuzz-0/attempts/999999999",
    f"projects/p/artifacts/{ARTIFACT}",
    "projects/p/artifacts/" + "a" * 64,
    "projects/p/tokens/token-aaaaaaaaaa",
    *(f"projects/p/jobs/{job_id}" for job_id in JOB_IDS),
]
WORDS = [
    *("", "-", "/", "..", "p", "fuzz-0", "jobs/fuzz-0", "projects//jobs/", "projects/p/jobs/", "projects/P"),
    *("projects/p/jobs/fuzz-0/../fuzz-1", "projects/" + "p" * 64, "projects/ｐ", "projects/p\n", "projects/p\0"),
    *("small", "../small", "/etc/passwd", "s3://bucket/x", "~/x", "a/b", "sst2", "mnli", "text-classification", "ner"),
    *("état", "e\u0301tat", "\u202egnp.exe", "a\u200bb", "\ufeffa", "\U0001f600", "x" * 1001, "é" * 600, "x" * 70_000),
    *("state = RUNNING", "labels:x AND (", 'create_time > "2026-01-01T00:00:00Z"', "NOT " * 200 + "priority > 1"),
    *("(" * 500, "priority > 1e999", "task desc", "create_time", "bm90IGpzb24=", "WzEsMl0=", "W10=", "WyJhIl0="),
    *("1", "0", "99999999999999999999", "'; DROP TABLE jobs; --", "%s%n{0}", "*.attention.*", "[", "[!", "a" * 64),
]
PLAUSIBLE = [
    *("", "a", "p", "fuzz-0", "fuzz-1", "small", "a/b", "sst2", "mnli", "text-classification", "main", "1", "0"),
    *("state = RUNNING", 'labels.team = "x"', "priority > 1", "task desc", "create_time", "*.attention.*", "text"),
    *("projects/p/jobs/fuzz-0", "état", "two words", "WzEsMl0=", "aaaaaaaaaaaa", "a" * 64),
]
INTEGERS = [0, 1, -1, 2, 7, 100, 500, 501, 1 << 20, (1 << 31) - 1, -(1 << 31)]
LONG = [*INTEGERS, 1 << 32, 1 << 53, 1 << 62, (1 << 63) - 1, -(1 << 63), 315_576_000_001]
DOUBLES = [0.0, -0.0, 0.03, 0.5, 1.0, 1.5, -1.0, 1e-320, 1e308, math.nan, math.inf, -math.inf]

_anything = st.one_of(st.sampled_from(NAMES), st.sampled_from(WORDS), st.text(max_size=30))
_tame_of_type: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(0, 20),
    FieldDescriptor.CPPTYPE_INT64: st.sampled_from([0, 1, 2, 7, 100, 1 << 20]),
    FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from([0.0, 0.03, 0.5, 1.0]),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
}
_of_type: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_INT32: st.one_of(st.sampled_from(INTEGERS), st.integers(-(1 << 31), (1 << 31) - 1)),
    FieldDescriptor.CPPTYPE_INT64: st.one_of(st.sampled_from(LONG), st.integers(-(1 << 63), (1 << 63) - 1)),
    FieldDescriptor.CPPTYPE_DOUBLE: st.one_of(st.sampled_from(DOUBLES), st.floats()),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
}


def one_value(field: FieldDescriptor, tame: bool) -> st.SearchStrategy[Any]:
    """Values of a field, of one element of it where it is repeated."""
    if field.message_type is not None:
        return messages(field.message_type, tame)
    if field.enum_type is not None:
        known = st.sampled_from([value.number for value in field.enum_type.values])
        return known if tame else st.one_of(known, st.just(99), st.just(-1))
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=50) if tame else st.one_of(st.binary(max_size=50), st.just(b"x" * 300_000))
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.sampled_from(PLAUSIBLE) if tame else _anything
    return (_tame_of_type if tame else _of_type)[field.cpp_type]


def set_field(message: Any, field: FieldDescriptor, tame: bool, draw: st.DrawFn) -> None:
    """Puts something into a field of a message."""
    kind = field.message_type
    container = getattr(message, field.name)
    if kind is not None and kind.GetOptions().map_entry:
        key, value = kind.fields_by_name["key"], kind.fields_by_name["value"]
        for _ in range(draw(st.sampled_from([1, 2] if tame else [1, 2, 3, 40]))):
            container[draw(one_value(key, tame))] = draw(one_value(value, tame))
    elif hasattr(container, "extend"):
        times = draw(st.sampled_from([1] if tame else [1, 1, 1, 500]))
        container.extend(draw(st.lists(one_value(field, tame), max_size=3)) * times)
    elif kind is not None:
        container.CopyFrom(draw(one_value(field, tame)))
    else:
        setattr(message, field.name, draw(one_value(field, tame)))


def messages(descriptor: Descriptor, tame: bool) -> st.SearchStrategy[Message]:
    """Messages of a type, with some of their fields set; tame ones have values that somebody could mean."""
    kind = message_factory.GetMessageClass(descriptor)
    if kind in (Duration, Timestamp):
        seconds = st.sampled_from([0, 1, 5, 60, 3600] if tame else LONG)
        return st.builds(kind, seconds=seconds, nanos=st.just(0) if tame else st.sampled_from(INTEGERS))
    known = list(descriptor.fields)

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        message = kind()
        chosen = st.lists(st.sampled_from(known), max_size=6, unique_by=lambda one: one.name) if known else st.just([])
        for one in draw(chosen):
            set_field(message, one, tame, draw)
        return message

    return build()


_JOB = "projects/p/jobs/[^/]*"
_NAME_OF = {  # where it is not a project's
    **dict.fromkeys(("GetJob", "WatchJob", "CancelJob", "RetryJob", "DeleteJob"), _JOB),
    **dict.fromkeys(("ListJobEvents", "ListAttempts", "ListMetrics"), _JOB),
    **dict.fromkeys(("GetArtifact", "GenerateDownloadUrls", "ReadFile"), "projects/p/artifacts/.*"),
    "FollowLogs": f"{_JOB}/attempts/.*",
    "RevokeToken": "projects/p/tokens/.*",
}


def requests(method: MethodDescriptor, target: Target) -> st.SearchStrategy[Any]:
    """Requests of a method: any, and those that are nearly right."""

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        tame = draw(st.integers(0, 3)) > 0
        request: Any = draw(messages(method.input_type, tame))
        fields = method.input_type.fields_by_name
        if not tame:
            return request
        for name in ("name", "parent", "attempt"):
            if name in fields:
                right = [one for one in NAMES if re.fullmatch(_NAME_OF.get(method.name, "projects/p"), one)]
                setattr(request, name, draw(st.sampled_from(right)))
        if "path" in fields:
            request.path = draw(st.sampled_from(["manifest.json", "weights", "../key"]))
        if "lease" in fields:
            request.lease.attempt, request.lease.fencing_token = LEASE, target.token
        if method.name == "CreateJob":
            request.parent, given = "projects/p", request.job
            merged = job_pb2.Job()
            merged.CopyFrom(target.valid)
            if draw(st.booleans()):
                merged.MergeFrom(given)
            request.job.CopyFrom(merged)
        return request

    return build()


def answer(target: Target, method: MethodDescriptor, request: Any) -> grpc.StatusCode:
    """Makes a call and counts how it ended. A stream that goes on is left after a while."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    worker = method.containing_service.name == "WorkerService"
    channel = target.workers if worker else target.clients
    metadata = (("authorization", f"Bearer {target.secret}"),) if worker else ()
    serialize = None if isinstance(request, bytes) else type(request).SerializeToString
    start = channel.unary_stream if method.server_streaming else channel.unary_unary
    call = start(path, serialize)
    seconds = STREAM_SECONDS if method.name in SILENT else CALL_SECONDS
    try:
        if method.server_streaming:
            for _, _ in zip(range(5), call(request, metadata=metadata, timeout=seconds), strict=False):
                pass
        else:
            call(request, metadata=metadata, timeout=seconds)
        code = grpc.StatusCode.OK
    except grpc.RpcError as error:
        code = error.code()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and method.name in SILENT:
            code = grpc.StatusCode.OK
        if code not in DOCUMENTED:
            pytest.fail(f"{path}: {code.name}: {error.details()}")
    target.answers[method.name, code.name] += 1
    return code


FUZZ = settings(
    max_examples=EXAMPLES,
    derandomize=GIVEN is None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)


@pytest.mark.parametrize("method", CONTRACT, ids=lambda method: method.name)
def test_any_message_is_answered_as_documented(target: Target, method: MethodDescriptor) -> None:
    @FUZZ
    @given(requests(method, target))
    def send(request: Any) -> None:
        answer(target, method, request)

    send()


@pytest.mark.parametrize("method", CONTRACT, ids=lambda method: method.name)
def test_any_bytes_are_answered_as_documented(target: Target, method: MethodDescriptor) -> None:
    @settings(FUZZ, max_examples=max(10, EXAMPLES // 10))
    @given(st.binary(max_size=100))
    def send(request: bytes) -> None:
        answer(target, method, request)

    send()


def test_a_message_that_is_too_large(target: Target) -> None:
    (method,) = (method for method in CONTRACT if method.name == "CreateJob")
    request = job_pb2.CreateJobRequest(parent="projects/p", job_id="x" * (2 << 20))
    assert answer(target, method, request) is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_afterwards_all_that_is_stored_can_be_read_and_the_server_serves(
    target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs, admin = job_pb2_grpc.JobServiceStub(target.clients), admin_pb2_grpc.AdminServiceStub(target.clients)
    projects = [project.name for project in pages(admin.ListProjects, admin_pb2.ListProjectsRequest(), "projects")]
    assert "projects/p" in projects
    read = 0
    for parent in projects:
        for job in pages(jobs.ListJobs, job_pb2.ListJobsRequest(parent=parent), "jobs"):
            assert jobs.GetJob(job_pb2.GetJobRequest(name=job.name)).uid == job.uid
            for lister, kind, items in (
                (jobs.ListJobEvents, job_pb2.ListJobEventsRequest, "events"),
                (jobs.ListAttempts, job_pb2.ListAttemptsRequest, "attempts"),
                (jobs.ListMetrics, job_pb2.ListMetricsRequest, "points"),
            ):
                list(pages(lister, kind(parent=job.name), items))
            read += 1
        list(pages(admin.ListTokens, admin_pb2.ListTokensRequest(parent=parent), "tokens"))
        artifacts = artifact_pb2_grpc.ArtifactServiceStub(target.clients)
        list(pages(artifacts.ListArtifacts, artifact_pb2.ListArtifactsRequest(parent=parent), "artifacts"))
    assert read >= len(JOB_IDS) - 1
    made = jobs.CreateJob(job_pb2.CreateJobRequest(parent="projects/p", job_id="after", job=target.valid))
    assert made.name == "projects/p/jobs/after"
    health = health_pb2_grpc.HealthStub(target.clients).Check(health_pb2.HealthCheckRequest())
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    codes = Counter(code for _, code in target.answers.elements())
    with capsys.disabled():
        print(f"\n{sum(codes.values()):,} messages to {len(CONTRACT)} RPCs, {read} jobs: {dict(codes.most_common())}")
    untouched = [method.name for method in CONTRACT if not any(name == method.name for name, _ in target.answers)]
    assert not untouched


def pages(method: Any, request: Any, items: str) -> Iterator[Any]:
    """Everything in a list."""
    while True:
        page = method(request, timeout=CALL_SECONDS)
        yield from getattr(page, items)
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
