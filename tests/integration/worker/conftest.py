"""A recording WorkerService, a real store, and supervisors as processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from mvprune.v1 import job_pb2, worker_pb2, worker_pb2_grpc
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import read_marker
from mvprune_workers.exits import ExitCode

from ...neighbours import free_ports
from ...waiting import PATIENCE, until
from ...warm import fork
from ...warm.python import warm_python

ATTEMPT = "projects/p/jobs/j/attempts/1"
UID = "0190-test-uid"
SECRET = "s3cret"
TOKEN = 7
LIMITS = dict.fromkeys(("call", "claim", "complete", "flush", "checkpoint", "stop"), PATIENCE)
LIMITS["report_interval"] = 0.05
Hook = Callable[[str, grpc.ServicerContext], None]
FAKE_TRAINER = Path(__file__).with_name("fake_trainer.py")
SUPERVISE = Path(__file__).with_name("supervise.py")


class Service(worker_pb2_grpc.WorkerServiceServicer):
    """Records what comes. Hooks see a call before it does anything, or after its effect; they may abort it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.calls: list[str] = []
        self.heartbeats: list[worker_pb2.HeartbeatRequest] = []
        self.log = bytearray()
        self.points: dict[tuple[str, int], float] = {}
        self.committed: list[worker_pb2.CommitCheckpointRequest] = []
        self.lost: list[str] = []
        self.outcomes: list[worker_pb2.CompleteAttemptRequest] = []
        self.spec = job_pb2.CompressionSpec(model="works", task="sst2", target_density=0.1)
        self.log_offset = 0
        self.teacher = ""
        self.checkpoints: list[worker_pb2.Checkpoint] = []
        self.uploads: list[worker_pb2.UploadedInput] = []
        self.accumulation_factor = 1
        self.heartbeat_interval = 0.05
        self.next_interval: float | None = None
        self.checkpoint_interval = 600.0
        self.directive = worker_pb2.HeartbeatResponse.CONTINUE
        self.grace = 0.3
        self.before: list[Hook] = []
        self.after: list[Hook] = []

    def ClaimAttempt(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.ClaimAttemptResponse:
        return self._handle(request, context, "claim", self._claim)

    def Heartbeat(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.HeartbeatResponse:
        return self._handle(request, context, "heartbeat", self._heartbeat)

    def AppendLogs(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.AppendLogsResponse:
        return self._handle(request, context, "logs", self._append)

    def ReportMetrics(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.ReportMetricsResponse:
        return self._handle(request, context, "metrics", self._metrics)

    def CommitCheckpoint(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.CommitCheckpointResponse:
        return self._handle(request, context, "commit", self._commit)

    def ReportLostChunks(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.ReportLostChunksResponse:
        return self._handle(request, context, "lost", self._lose)

    def CompleteAttempt(self, request: Any, context: grpc.ServicerContext) -> worker_pb2.CompleteAttemptResponse:
        return self._handle(request, context, "complete", self._complete)

    def wait(self, condition: Callable[[], Any]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE), f"calls so far: {self.calls[-20:]}"

    def fail(self, call: str, code: grpc.StatusCode, times: int = sys.maxsize) -> None:
        """The next calls of that name are answered with an error; nothing of them is recorded."""
        left = iter(range(times))

        def abort(name: str, context: grpc.ServicerContext) -> None:
            if name == call and next(left, None) is not None:
                context.abort(code, "injected")

        self.before.append(abort)

    def lose_answers(self, call: str, times: int) -> None:
        """The next calls of that name are acted on, then answered with UNAVAILABLE."""
        left = iter(range(times))

        def abort(name: str, context: grpc.ServicerContext) -> None:
            if name == call and next(left, None) is not None:
                context.abort(grpc.StatusCode.UNAVAILABLE, "injected")

        self.after.append(abort)

    def _handle(self, request: Any, context: grpc.ServicerContext, call: str, work: Callable[[Any], Any]) -> Any:
        assert ("authorization", f"Bearer {SECRET}") in context.invocation_metadata()
        assert request.lease == worker_pb2.Lease(attempt=ATTEMPT, fencing_token=TOKEN)
        for hook in self.before:
            hook(call, context)
        with self.changed:
            response = work(request)
            self.calls.append(call)
            self.changed.notify_all()
        for hook in self.after:
            hook(call, context)
        return response

    def _claim(self, request: worker_pb2.ClaimAttemptRequest) -> worker_pb2.ClaimAttemptResponse:
        assert request.runner_id
        assert request.node
        return worker_pb2.ClaimAttemptResponse(
            spec=self.spec,
            lease_ttl=Duration(seconds=5),
            heartbeat_interval=duration(self.heartbeat_interval),
            log_offset=self.log_offset,
            teacher_manifest_sha256=self.teacher,
            checkpoints=self.checkpoints,
            checkpoint_interval=duration(self.checkpoint_interval),
            accumulation_factor=self.accumulation_factor,
            uploads=self.uploads,
        )

    def _heartbeat(self, request: worker_pb2.HeartbeatRequest) -> worker_pb2.HeartbeatResponse:
        self.heartbeats.append(request)
        interval = None if self.next_interval is None else duration(self.next_interval)
        return worker_pb2.HeartbeatResponse(directive=self.directive, grace=duration(self.grace), interval=interval)

    def _append(self, request: worker_pb2.AppendLogsRequest) -> worker_pb2.AppendLogsResponse:
        assert len(request.data) <= 256 << 10
        stored = self.log_offset + len(self.log)
        if request.offset <= stored:
            self.log += request.data[stored - request.offset :]
        return worker_pb2.AppendLogsResponse(next_offset=self.log_offset + len(self.log))

    def _metrics(self, request: worker_pb2.ReportMetricsRequest) -> worker_pb2.ReportMetricsResponse:
        assert 0 < len(request.points) <= 1000
        for point in request.points:
            self.points.setdefault((point.metric, point.step), point.value)
        return worker_pb2.ReportMetricsResponse()

    def _commit(self, request: worker_pb2.CommitCheckpointRequest) -> worker_pb2.CommitCheckpointResponse:
        self.committed.append(request)
        return worker_pb2.CommitCheckpointResponse()

    def _lose(self, request: worker_pb2.ReportLostChunksRequest) -> worker_pb2.ReportLostChunksResponse:
        assert 0 < len(request.chunks) <= 16
        self.lost += request.chunks
        return worker_pb2.ReportLostChunksResponse(missing=request.chunks)

    def _complete(self, request: worker_pb2.CompleteAttemptRequest) -> worker_pb2.CompleteAttemptResponse:
        self.outcomes.append(request)
        return worker_pb2.CompleteAttemptResponse()


def duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


class Worker:
    """A supervisor process on a fake trainer, and the service that it talks to."""

    secret = SECRET

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.service = Service()
        self.uid = UID
        self.cache = folder / "cache"
        self.cpus = "1"
        self.store = open_store((folder / "store").as_uri())
        self.scratch = folder / "scratch"
        self.stage = folder / "stage"
        self.stage.mkdir()
        self.output = folder / "stdout"
        self.process: subprocess.Popen[bytes] | fork.Fork | None = None
        (self.port,) = free_ports(1)
        self.target = f"127.0.0.1:{self.port}"
        self.listen()

    def listen(self) -> None:
        self.server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(self.service, self.server)
        self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        self.server.start()

    def start(self, model: str = "works", **limits: float) -> None:
        """Starts a supervisor whose trainer is the fake one."""
        self.service.spec.model = model
        self._start(sys.executable, SUPERVISE, FAKE_TRAINER, json.dumps(LIMITS | limits))

    def start_real(self, models: Path, data: Path, **options: Any) -> None:
        """Starts the program as the control plane does."""
        self.start_real_with({"MVPRUNE_MODELS": str(models), "MVPRUNE_DATA": str(data)}, **options)

    def start_real_with(self, environment: dict[str, str], *, warm: bool = True) -> None:
        """The same in another environment. It and its trainer are forks of processes that have imported all, or new."""
        python = str(warm_python()) if warm else sys.executable
        self._start(python, "-m", "mvprune_workers", environment=environment, warm=warm)

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """Of the supervisor."""
        return {
            **os.environ,
            "MVPRUNE_WORKER_TARGET": self.target,
            "MVPRUNE_ATTEMPT": ATTEMPT,
            "MVPRUNE_ATTEMPT_UID": self.uid,
            "MVPRUNE_FENCING_TOKEN": str(TOKEN),
            "MVPRUNE_ATTEMPT_SECRET": SECRET,
            "MVPRUNE_STORE": self.store.url,
            "MVPRUNE_SCRATCH": str(self.scratch),
            "MVPRUNE_CACHE": str(self.cache),
            "MVPRUNE_CPUS": self.cpus,
            "AWS_SECRET_ACCESS_KEY": "store-secret",
            "OTEL_EXPORTER_OTLP_HEADERS": "authorization=collector-secret",
            "STAGE": str(self.stage),
            **more,
        }

    def _start(
        self, python: str, *words: str | Path, environment: dict[str, str] | None = None, warm: bool = True
    ) -> None:
        environment = self.environment(environment or {})
        with self.output.open("wb") as output, Path(os.devnull).open() as nothing:
            fds = nothing.fileno(), output.fileno(), 2
            self.process = fork.start(python, words, environment, fds) if warm else None
            if self.process is None:
                self.process = subprocess.Popen([python, *words], env=environment, stdin=nothing, stdout=output)

    def wait(self) -> ExitCode:
        assert self.process is not None
        return ExitCode(self.process.wait(PATIENCE))

    def told(self, name: str) -> str:
        """What the trainer put on the stage, once it is there."""
        until((self.stage / name).exists, f"the trainer told {name}")
        return (self.stage / name).read_text()

    def go(self) -> None:
        self.say("go", "x")

    def marker(self) -> str | None:
        """The manifest that the attempt has committed."""
        return read_marker(self.store, self.uid)

    def say(self, name: str, text: str) -> None:
        """Puts a word on the stage, whole."""
        partial = self.stage / f"{name}.new"
        partial.write_text(text)
        partial.rename(self.stage / name)

    def go_to(self, step: int) -> None:
        """Lets a trainer that makes steps make them up to this one."""
        self.say("until", str(step))

    def reaches(self, step: int) -> None:
        """Waits until a trainer that makes steps has made this one."""
        until(lambda: self.told("step") == str(step), f"step {step}")

    def log_has(self, text: str) -> bool:
        return text.encode() in bytes(self.service.log)

    def lock_out(self) -> Callable[[], None]:
        """Takes the store's folder away, as an unmounted disk does; returns what brings it back."""
        root, away = self.folder / "store", self.folder / "store.away"
        root.rename(away)
        root.write_text("not a folder")

        def give_back() -> None:
            root.unlink()
            away.rename(root)

        return give_back

    def assert_clean(self) -> None:
        """No process of the trainer's and no temporary file is left."""
        for file in self.stage.glob("*.pid"):
            self.gone(int(file.read_text()))
        assert {path.name for path in self.scratch.iterdir()} <= {"bytecode"}  # where Python may not write its own

    def gone(self, pid: int) -> None:
        """Waits until a process is dead."""
        until(lambda: not self.alive(pid), f"{pid} is dead")

    def alive(self, pid: int) -> bool:
        """Whether a process runs; a zombie that nobody reaped does not."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        self.server.stop(None)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker(tmp_path)
    yield worker
    worker.close()
