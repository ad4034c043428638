"""A worker that does one thing at a time, when it is told to, and believes only what it has heard."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import mvprune
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.domain.leases import StaleLease
from mvprune_service.stores.base import StoreUnavailable
from mvprune_service.stores.checkpoints import fetch_checkpoint, put_checkpoint
from mvprune_service.stores.layout import publish

from .model_invariants import WORD
from .model_neighbours import MemoryStore, Process

_USUAL = ("heartbeat", "report", "checkpoint") * 3
ACTIONS = (*_USUAL, "upload", "finish", "publish_and_die", "fail", "die")
FAILURES = ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "NAN_LOSS", "STORE_UNAVAILABLE", "PREEMPTED")
RESULTS = 3  # different artifacts: some jobs have the same one


class Call:
    """The context of a call."""

    def __init__(self, secret: str = "") -> None:
        self._metadata = (("authorization", f"Bearer {secret}"),)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


class Worker:
    """A supervisor with its trainer. `resumed` is called with what each claim was answered."""

    def __init__(
        self,
        process: Process,
        number: int,
        store: MemoryStore,
        folder: Path,
        resumed: Callable[[Worker, worker_pb2.ClaimAttemptResponse], None],
    ) -> None:
        self.process = process
        self.attempt_uid = process.launch.env["MVPRUNE_ATTEMPT_UID"]
        self.committed: list[tuple[int, int]] = []  # checkpoints: when the answer came, step
        self.claimed = False
        self._number = number
        self._store = store
        self._folder = folder
        self._resumed = resumed
        self._lease = worker_pb2.Lease(
            attempt=process.launch.env["MVPRUNE_ATTEMPT"],
            fencing_token=int(process.launch.env["MVPRUNE_FENCING_TOKEN"]),
        )
        self._call: Any = Call(process.launch.env["MVPRUNE_ATTEMPT_SECRET"])
        self._cancelled = False
        self._outcome: worker_pb2.CompleteAttemptRequest | None = None
        self._step = 0
        self._logged = 0

    def __repr__(self) -> str:
        return f"worker {self._number} of {self._lease.attempt}"

    async def act(self, action: str, choice: int, servicer: WorkerServicer) -> None:
        """Does it, or what must be done before it. Raises DatabaseUnavailable where no answer came: it will be
        repeated."""
        if not self.process.alive:
            return
        try:
            await self._due(action)(choice, servicer)
        except StaleLease:
            self.process.exit(4)
        except StoreUnavailable:
            pass  # it tries again

    def _due(self, action: str) -> Callable[[int, WorkerServicer], Awaitable[None]]:
        if action == "die":
            return self._die
        if not self.claimed:
            return self._claim
        if self._outcome is None and self._cancelled:
            self._conclude(cancelled=worker_pb2.CompleteAttemptRequest.Cancelled())
        if self._outcome is None and self.process.told_to_stop:
            self._conclude(failure=job_pb2.Failure(reason="PREEMPTED"))
        if self._outcome is not None and action != "heartbeat":
            return self._complete
        due: Callable[[int, WorkerServicer], Awaitable[None]] = getattr(self, f"_{action}")
        return due

    async def _claim(self, choice: int, servicer: WorkerServicer) -> None:
        request = worker_pb2.ClaimAttemptRequest(
            lease=self._lease, runner_id=f"runner-{self._number}", version=mvprune.__version__
        )
        answer = await servicer.ClaimAttempt(request, self._call)
        self._resumed(self, answer)
        self.claimed, self._logged = True, answer.log_offset
        if answer.checkpoints and not self._store.away:
            first = answer.checkpoints[0]
            target = self._folder / f"resumed-{self._number}-{first.step}"
            if not target.exists():
                fetch_checkpoint(self._store, first.attempt_uid, first.step, first.manifest_sha256, target)
            self._step = first.step

    async def _heartbeat(self, choice: int, servicer: WorkerServicer) -> None:
        request = worker_pb2.HeartbeatRequest(lease=self._lease)
        request.progress.step = self._step
        answer = await servicer.Heartbeat(request, self._call)
        self._cancelled = answer.directive == worker_pb2.HeartbeatResponse.CANCEL

    async def _report(self, choice: int, servicer: WorkerServicer) -> None:
        request = worker_pb2.AppendLogsRequest(lease=self._lease, offset=self._logged, data=WORD * (choice + 1))
        answer = await servicer.AppendLogs(request, self._call)
        assert answer.next_offset >= self._logged + len(request.data), "log bytes were not stored"
        self._logged = answer.next_offset
        point = job_pb2.MetricPoint(metric="loss", step=self._step, value=1.0)
        await servicer.ReportMetrics(worker_pb2.ReportMetricsRequest(lease=self._lease, points=[point]), self._call)

    async def _checkpoint(self, choice: int, servicer: WorkerServicer) -> None:
        step = self._step + 10
        source = self._folder / f"checkpoint-{step}"
        source.mkdir(exist_ok=True)
        (source / "state").write_bytes(b"%d" % step)
        sha256 = put_checkpoint(self._store, source, self.attempt_uid, step)
        request = worker_pb2.CommitCheckpointRequest(lease=self._lease, step=step, manifest_sha256=sha256)
        await servicer.CommitCheckpoint(request, self._call)
        self._step = step
        self.committed.append((self._store.now, step))

    async def _upload(self, choice: int, servicer: WorkerServicer) -> None:
        """A part of the result, which may remain all there ever is."""
        data = artifact(self._folder, choice) / "weights"
        key = f"blobs/sha256/{_sha256(data)[:2]}/{_sha256(data)}"
        self._store.put_file(key, data, _sha256(data))

    async def _finish(self, choice: int, servicer: WorkerServicer) -> None:
        self._conclude(manifest_sha256=publish(self._store, artifact(self._folder, choice), self.attempt_uid))
        await self._complete(choice, servicer)

    async def _publish_and_die(self, choice: int, servicer: WorkerServicer) -> None:
        publish(self._store, artifact(self._folder, choice), self.attempt_uid)
        self.process.exit(137)

    async def _fail(self, choice: int, servicer: WorkerServicer) -> None:
        self._conclude(failure=job_pb2.Failure(reason=FAILURES[choice % len(FAILURES)]))
        await self._complete(choice, servicer)

    async def _die(self, choice: int, servicer: WorkerServicer) -> None:
        self.process.exit(137)

    async def _complete(self, choice: int, servicer: WorkerServicer) -> None:
        assert self._outcome is not None
        await servicer.CompleteAttempt(self._outcome, self._call)
        self.process.exit(0)

    def _conclude(self, **outcome: Any) -> None:
        self._outcome = worker_pb2.CompleteAttemptRequest(lease=self._lease, **outcome)


def artifact(folder: Path, choice: int) -> Path:
    """A folder with one of the results."""
    target, data = folder / f"result-{choice % RESULTS}", b"weights" * (choice % RESULTS + 1)
    if not target.exists():
        target.mkdir()
        (target / "weights").write_bytes(data)
        entry = {
            "path": "weights",
            "size_bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "media_type": "application/octet-stream",
        }
        manifest = {"files": [entry], "metrics": {}, "primary_metric": "accuracy", "accounting": {}}
        (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
