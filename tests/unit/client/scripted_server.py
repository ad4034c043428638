"""A real gRPC server with scripted servicers, and mvpctl in this process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2

from mvprune import Client
from mvprune.artifact import MANIFEST_FILE, Manifest
from mvprune.cli import main
from mvprune.v1 import (
    admin_pb2_grpc,
    artifact_pb2,
    artifact_pb2_grpc,
    catalog_pb2_grpc,
    issuer_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    sweep_pb2_grpc,
    upload_pb2_grpc,
    webhook_pb2_grpc,
)

NAME = "projects/default/jobs/j1"
Stub = Callable[[Any, grpc.ServicerContext], Any]


def refuse(
    context: grpc.ServicerContext,
    code: grpc.StatusCode,
    message: str,
    reason: str = "",
    violations: dict[str, str] | None = None,
    retry_seconds: float | None = None,
) -> None:
    """Ends a call the way the service does: google.rpc.Status in the trailing metadata."""
    status = status_pb2.Status(code=getattr(code_pb2, code.name), message=message)
    bad = [error_details_pb2.BadRequest.FieldViolation(field=f, description=d) for f, d in (violations or {}).items()]
    details: list[Any] = [
        error_details_pb2.ErrorInfo(reason=reason or code.name, domain="mvprune"),
        error_details_pb2.BadRequest(field_violations=bad),
    ]
    if retry_seconds is not None:
        details.append(error_details_pb2.RetryInfo())
        details[-1].retry_delay.FromMilliseconds(int(1000 * retry_seconds))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, message)


def job(state: str = "RUNNING", **fields: Any) -> job_pb2.Job:
    """A job message."""
    message = job_pb2.Job(name=NAME, uid="u1", state=state, attempt=1, etag="3")
    message.spec.model = "bert-base-uncased"
    message.spec.task = "sst2"
    message.spec.movement.SetInParent()
    message.spec.target_density = 0.03
    message.create_time.FromJsonString("2026-01-31T12:00:00Z")
    for name, value in fields.items():
        part = getattr(message, name)
        if hasattr(part, "CopyFrom"):
            part.CopyFrom(value)
        elif isinstance(value, dict):
            part.update(value)
        else:
            setattr(message, name, value)
    return message


METRICS = {
    "dense/accuracy": 0.9,
    "eval/accuracy": 0.875,
    "delta/accuracy": -0.025,
    "dense/f1": 0.8,
    "eval/f1": 0.7,
    "delta/f1": -0.1,
}
ACCOUNTING = artifact_pb2.Accounting(
    target_density=0.03,
    density=0.0301,
    prunable_weights=84_934_656,
    kept_weights=2_556_533,
    encoder_parameters=85_054_464,
    dense_bytes=438_000_000,
    sparse_bytes=54_750_000,
    encoder_bytes=7_000_000,
    embedding_bytes=47_100_000,
    dense_flops=22_350_000_000,
    sparse_flops=5_900_000_000,
)


TOTAL_BYTES = 55_000_000


def _file(path: str, data: bytes) -> artifact_pb2.ArtifactFile:
    return artifact_pb2.ArtifactFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


@dataclass
class Fake:
    """What the server answers and was asked.

    Attributes:
        answers: method name to a function of request and context; a list of them is used up call by call.
        requests: method name to the requests so far.
    """

    address: str = ""
    answers: dict[str, Stub | list[Stub]] = field(default_factory=dict)
    requests: dict[str, list[Any]] = field(default_factory=dict)

    def asked(self, method: str) -> Any:
        """The one request of a method."""
        (request,) = self.requests[method]
        return request

    def serve(self, files: dict[str, bytes]) -> str:
        """Makes an artifact of files and a manifest; returns its name."""
        listed = [_file(path, data) for path, data in files.items()]
        content = {"manifest.json": json.dumps({"files": [file.sha256 for file in listed]}).encode(), **files}
        listed.insert(0, _file("manifest.json", content["manifest.json"]))
        artifact = artifact_pb2.Artifact(
            name=f"projects/default/artifacts/{listed[0].sha256}",
            job=NAME,
            attempt=1,
            files=listed,
            metrics=METRICS,
            primary_metric="f1",
            accounting=ACCOUNTING,
            total_bytes=TOTAL_BYTES,
        )
        self.answers["GetArtifact"] = lambda request, context: artifact
        self.answers["GenerateDownloadUrls"] = lambda request, context: artifact_pb2.GenerateDownloadUrlsResponse()

        def read(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            data = content[request.path]
            for start in range(request.offset, len(data), 1000):
                yield artifact_pb2.ReadFileResponse(offset=start, data=data[start : start + 1000])
            yield artifact_pb2.ReadFileResponse(offset=len(data), end=True)

        self.answers["ReadFile"] = read
        return artifact.name

    def _answer(self, method: str, request: Any, context: grpc.ServicerContext) -> Any:
        self.requests.setdefault(method, []).append(request)
        answer = self.answers.get(method)
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        if answer is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, method)
        return answer(request, context)


def _servicer(base: type, fake: Fake, streams: set[str]) -> Any:
    def unary(name: str) -> Any:
        return lambda self, request, context: fake._answer(name, request, context)

    def stream(name: str) -> Any:
        def answer(self: Any, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            yield from fake._answer(name, request, context)

        return answer

    names = [name for name in vars(base) if name[0].isupper()]
    return type("Servicer", (base,), {name: (stream if name in streams else unary)(name) for name in names})()


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server on a free port."""
    state = Fake()
    server = grpc.server(ThreadPoolExecutor(4))
    jobs = _servicer(job_pb2_grpc.JobServiceServicer, state, {"WatchJob", "FollowLogs"})
    job_pb2_grpc.add_JobServiceServicer_to_server(jobs, server)
    artifacts = _servicer(artifact_pb2_grpc.ArtifactServiceServicer, state, {"ReadFile"})
    artifact_pb2_grpc.add_ArtifactServiceServicer_to_server(artifacts, server)
    admin = _servicer(admin_pb2_grpc.AdminServiceServicer, state, set())
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, server)
    issuers = _servicer(issuer_pb2_grpc.IssuerServiceServicer, state, set())
    issuer_pb2_grpc.add_IssuerServiceServicer_to_server(issuers, server)
    webhooks = _servicer(webhook_pb2_grpc.WebhookServiceServicer, state, set())
    webhook_pb2_grpc.add_WebhookServiceServicer_to_server(webhooks, server)
    sweeps = _servicer(sweep_pb2_grpc.SweepServiceServicer, state, {"WatchSweep"})
    sweep_pb2_grpc.add_SweepServiceServicer_to_server(sweeps, server)
    catalog = _servicer(catalog_pb2_grpc.CatalogServiceServicer, state, set())
    catalog_pb2_grpc.add_CatalogServiceServicer_to_server(catalog, server)
    uploads = _servicer(upload_pb2_grpc.UploadServiceServicer, state, set())
    upload_pb2_grpc.add_UploadServiceServicer_to_server(uploads, server)
    state.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield state
    server.stop(None).wait()


@pytest.fixture
def client(fake: Fake) -> Iterator[Client]:
    """A client of the server."""
    with Client(fake.address) as one:
        yield one


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as one JSON document."""
        return json.loads(self.out)


@pytest.fixture
def mvpctl(fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs a command against the server."""
    monkeypatch.setenv("MVPRUNE_ADDRESS", fake.address)

    def run(*argv: str) -> Outcome:
        code = main(argv)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


Mvpctl = Callable[..., Outcome]
SIZE = job_pb2.ModelSize(base_parameters=108_891_648, encoder_parameters=85_054_464, prunable_weights=84_934_656)
SUBMIT = ("submit", "--model", "bert-base-uncased", "--task", "sst2")


def watch(*jobs: job_pb2.Job) -> Any:
    """Answers WatchJob with a job's states; the last one is done."""

    def answer(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for number, one in enumerate(jobs, start=1):
            event = job_pb2.JobEvent(sequence=number, type="STATE_CHANGED", to_state=one.state, actor="scheduler")
            yield job_pb2.WatchJobResponse(sequence=number, job=one, events=[event], done=number == len(jobs))

    return answer


def always(message: Any) -> Any:
    """Answers every call with one message."""
    return lambda request, context: message


@pytest.fixture
def succeeds(fake: Fake) -> str:
    """A job that is submitted, runs and succeeds; the name of its artifact."""
    name = fake.serve({"weights.safetensors": b"w" * 3000})
    running = job(progress=job_pb2.Progress(phase="pruning", step=120, total_steps=400, density=0.412, loss=0.43125))
    running.progress.eta.seconds = 80
    fake.answers["CreateJob"] = always(job("QUEUED", model_size=SIZE))
    fake.answers["GetJob"] = always(job("QUEUED", model_size=SIZE))
    fake.answers["WatchJob"] = watch(job("QUEUED"), running, job("SUCCEEDED", artifact=name, model_size=SIZE))
    return name


def serve_folder(fake: Fake, folder: Path, manifest: Manifest) -> None:
    """Makes a folder the artifact of every job."""
    listed = [artifact_pb2.ArtifactFile(**vars(file)) for file in manifest.files]
    size = (folder / MANIFEST_FILE).stat().st_size
    listed.append(artifact_pb2.ArtifactFile(path=MANIFEST_FILE, size_bytes=size, sha256=manifest.digest))
    name = f"projects/default/artifacts/{manifest.digest}"
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=name))
    fake.answers["GetArtifact"] = always(artifact_pb2.Artifact(name=name, files=listed))
    fake.answers["GenerateDownloadUrls"] = always(artifact_pb2.GenerateDownloadUrlsResponse())

    def read(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        content = (folder / request.path).read_bytes()
        for start in range(request.offset, len(content), 1000):
            yield artifact_pb2.ReadFileResponse(offset=start, data=content[start : start + 1000])
        yield artifact_pb2.ReadFileResponse(offset=len(content), end=True)

    fake.answers["ReadFile"] = read


def echo(request: Any, context: grpc.ServicerContext) -> job_pb2.Job:
    answer = job("QUEUED")
    answer.spec.CopyFrom(request.job.spec)
    answer.policy.CopyFrom(request.job.policy)
    return answer
