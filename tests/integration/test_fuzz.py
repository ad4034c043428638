"""Every RPC of every service on both ports, with messages that are made from the descriptors: each is answered with OK
or a status of the documented set, in time, and afterwards the server serves and all that is stored can be read.

MVPRUNE_FUZZ_EXAMPLES sets how many messages each RPC gets; they are then others each time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
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
from mvprune_service.assembly.service import Service
from mvprune_service.config import Settings
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.secret import attempt_secret, load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import blob_key, manifest_key

from ..conftest import server_path
from ..unit.service.conftest import ScriptedExecutor
from ..unit.sources.test_model_folders import write_model
from ..waiting import PATIENCE
from .messages import ARTIFACT, JOB_IDS, LEASE, requests

GIVEN = os.environ.get("MVPRUNE_FUZZ_EXAMPLES")
EXAMPLES = int(GIVEN or 100)
CALL_SECONDS, STREAM_SECONDS = PATIENCE, 0.1
DOCUMENTED = {
    grpc.StatusCode[name]
    for name in (
        *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "ABORTED"),
        *("PERMISSION_DENIED", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "OUT_OF_RANGE"),
    )
}
CONTRACT = [  # workers first, while there are attempts
    method
    for file in (worker_pb2, job_pb2, artifact_pb2, catalog_pb2, admin_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
# Streams that say nothing until something happens.
SILENT = {"WatchJob", "WatchJobs", "FollowLogs"}


class IdleExecutor(ScriptedExecutor):
    """Takes every job and does nothing: what happens to attempts is up to the messages."""


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
            "dataset": {"train": server_path(train), "validation": server_path(train)},
            "movement": {},
            "target_density": 0.1,
            "training": {"max_steps": 10},
        },
        policy={"resources": {"cpus": 0.5}},
    )
    ready, stopping = threading.Event(), threading.Event()
    service = Service(given)

    async def serve() -> None:
        async with service:
            ready.set()
            await asyncio.to_thread(stopping.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mvprune_service.assembly.resources.open_executor", lambda *_: IdleExecutor())
        thread.start()
        assert ready.wait(PATIENCE)
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
    thread.join(PATIENCE)


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


@pytest.mark.slow
@pytest.mark.parametrize("method", CONTRACT, ids=lambda method: method.name)
def test_any_message_is_answered_as_documented(target: Target, method: MethodDescriptor) -> None:
    @FUZZ
    @given(requests(method, target.valid, target.token))
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
