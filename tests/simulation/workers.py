"""Workers: each claims its attempt, trains for virtual seconds, reports, and publishes, fails or dies."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import grpc

import mvprune
from mvprune.v1 import job_pb2, worker_pb2
from mvprune_service.clock import system_clock
from mvprune_service.executors.base import Launch
from mvprune_service.stores.base import StoreUnavailable
from mvprune_service.stores.checkpoints import fetch_checkpoint, put_checkpoint
from mvprune_service.stores.layout import publish

from .neighbours import GRACE_SECONDS, Running, SimulatedStore
from .servers import HEARTBEAT_SECONDS, Channel, Refused, Unreachable
from .wire import CURRENT, Wire

FAILURES = ("OUT_OF_MEMORY", "OUT_OF_MEMORY", "NAN_LOSS", "STORE_UNAVAILABLE", "PREEMPTED")
RESULTS = 3  # different artifacts: some jobs have the same one
_SERVICE = "/mvprune.v1.WorkerService/"
_PATIENCE_SECONDS = 90.0  # without an answer, before it gives up
_AGAIN_SECONDS = 3.0


class LeaseLost(Exception):
    """Another attempt has the job, or nobody."""


class Ended(Exception):
    """The worker has nothing more to do: its exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Worker:
    """A supervisor with its trainer.

    Args:
        resumed: called with the answer of each claim.
    """

    def __init__(
        self,
        launch: Launch,
        number: int,
        store: SimulatedStore,
        channel: Channel,
        wire: Wire,
        resumed: Callable[[Worker, worker_pb2.ClaimAttemptResponse], None],
    ) -> None:
        self.attempt_uid = launch.env["MVPRUNE_ATTEMPT_UID"]
        self.process = wire.process(f"worker-{number}")
        self.running = Running(launch, self._terminate, partial(self._exit, 137))
        self.process.on_death.append(lambda: self.running.exit(137))
        self.claimed = False
        self.committed: list[tuple[int, int]] = []  # checkpoints: when the answer came, step
        self.is_well = False  # it neither fails nor dies any more
        self._number = number
        self._store = store
        self._channel = channel
        self._wire = wire
        self._resumed = resumed
        self._secret = launch.env["MVPRUNE_ATTEMPT_SECRET"]
        self._lease = worker_pb2.Lease(
            attempt=launch.env["MVPRUNE_ATTEMPT"], fencing_token=int(launch.env["MVPRUNE_FENCING_TOKEN"])
        )
        self._wake = asyncio.Event()
        self._told_to_stop = self._cancelled = self._lost = False
        self._step = self._logged = 0
        context = contextvars.copy_context()
        context.run(CURRENT.set, self.process)
        wire.watch(context.run(wire.loop.create_task, self._run()))

    def __repr__(self) -> str:
        return f"{self.process.name} of {self._lease.attempt}"

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.running.alive

    def _terminate(self) -> None:
        if not self._told_to_stop:
            self._told_to_stop = True
            self._wake.set()
            self._wire.loop.call_later(GRACE_SECONDS, self.running.kill)

    def _exit(self, code: int) -> None:
        if self.running.alive:
            self._wire.say(f"{self.process.name} exits with {code}")
            self.running.exit(code)
            self.process.kill()

    async def _run(self) -> None:
        try:
            await self._work()
            code = 0
        except Ended as end:
            code = end.code
        except LeaseLost:
            code = 4
        except Unreachable:
            code = 5
        except StoreUnavailable:
            code = 6
        self._exit(code)

    async def _work(self) -> None:
        await self._pause(self.process.chance.uniform(0, 5))
        await self._claim()
        self._beating = asyncio.create_task(self._beat_on())  # ends with the process
        chance = self.process.chance
        for _ in range(chance.randint(1, 6)):
            await self._pause(chance.uniform(1, 8))
            await self._look_up()
            await self._train()
        await self._end()

    async def _pause(self, seconds: float) -> None:
        """Waits until something is asked of it."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _look_up(self) -> None:
        """Does what is asked of it, if anything is."""
        if self._lost:
            raise LeaseLost
        if self._cancelled:
            await self._complete(cancelled=worker_pb2.CompleteAttemptRequest.Cancelled())
        if self._told_to_stop:
            await self._complete(failure=job_pb2.Failure(reason="PREEMPTED"))

    async def _claim(self) -> None:
        request = worker_pb2.ClaimAttemptRequest(
            lease=self._lease, runner_id=f"runner-{self._number}", version=mvprune.__version__
        )
        answer = await self._ask("ClaimAttempt", request)
        self._resumed(self, answer)
        self.claimed, self._logged = True, answer.log_offset
        if answer.checkpoints:
            first = answer.checkpoints[0]
            target = Path(mkdtemp(dir=_folder())) / "resumed"
            try:
                await asyncio.to_thread(
                    fetch_checkpoint, self._store, first.attempt_uid, first.step, first.manifest_sha256, target
                )
            except StoreUnavailable:
                return
            self._step = first.step

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                await self._heartbeat()
            except LeaseLost:
                self._lost = True
                self._wake.set()
                return
            except (Unreachable, Refused):
                pass

    async def _heartbeat(self) -> None:
        request = worker_pb2.HeartbeatRequest(lease=self._lease)
        request.progress.step = self._step
        answer = await self._call("Heartbeat", request)
        if answer.directive == worker_pb2.HeartbeatResponse.CANCEL:
            self._cancelled = True
            self._wake.set()

    async def _train(self) -> None:
        """A part of the training."""
        draw = self.process.chance.random()
        if draw < 0.3:
            await self._report()
        elif draw < 0.6:
            await self._checkpoint()
        elif draw < 0.65 and not self.is_well:
            raise Ended(137)
        self._step += 1

    async def _report(self) -> None:
        data = logged(self._logged, self.process.chance.randint(1, 24))
        answer = await self._ask(
            "AppendLogs", worker_pb2.AppendLogsRequest(lease=self._lease, offset=self._logged, data=data)
        )
        assert answer.next_offset >= self._logged + len(data), "log bytes were not stored"
        self._logged = answer.next_offset
        point = job_pb2.MetricPoint(metric="loss", step=self._step, value=1.0)
        await self._ask("ReportMetrics", worker_pb2.ReportMetricsRequest(lease=self._lease, points=[point]))

    async def _checkpoint(self) -> None:
        step = self._step + 10
        try:
            sha256 = await asyncio.to_thread(put_checkpoint, self._store, _state(step), self.attempt_uid, step)
        except StoreUnavailable:
            return
        request = worker_pb2.CommitCheckpointRequest(lease=self._lease, step=step, manifest_sha256=sha256)
        await self._ask("CommitCheckpoint", request)
        self._step = step
        self.committed.append((system_clock(), step))

    async def _end(self) -> None:
        draw = 0.0 if self.is_well else self.process.chance.random()
        if draw > 0.9:
            raise Ended(137)
        if draw > 0.75:
            reason = FAILURES[self.process.chance.randrange(len(FAILURES))]
            await self._complete(failure=job_pb2.Failure(reason=reason))
        folder = artifact(self.process.chance.randrange(RESULTS))
        for _ in range(4):
            try:
                sha256 = await asyncio.to_thread(
                    publish, self._store, folder, self.attempt_uid, lambda: self._wire.block_on(self._confirm)
                )
                break
            except StoreUnavailable:
                await self._pause(self.process.chance.uniform(1, 20))
                await self._look_up()
        else:
            await self._complete(failure=job_pb2.Failure(reason="STORE_UNAVAILABLE"))
            return
        if draw > 0.7:  # before it could say so
            raise Ended(137)
        await self._complete(manifest_sha256=sha256)

    async def _confirm(self) -> None:
        """Before the marker: whether it still has the lease. Without an answer it goes on."""
        with suppress(Unreachable, Refused):
            await self._heartbeat()

    async def _complete(self, **outcome: Any) -> None:
        """Reports an outcome, and ends."""
        await self._ask("CompleteAttempt", worker_pb2.CompleteAttemptRequest(lease=self._lease, **outcome))
        raise Ended(0)

    async def _ask(self, method: str, request: Any) -> Any:
        """An answer, however often it must ask. Raises LeaseLost, and Ended after long silence."""
        until = self._wire.loop.time() + _PATIENCE_SECONDS
        while True:
            try:
                return await self._call(method, request)
            except (Unreachable, Refused) as error:
                known = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
                if isinstance(error, Refused) and error.code not in known:
                    raise AssertionError(f"{self}: {method}: {error}") from error
                if self._wire.loop.time() > until:
                    raise Ended(5) from None
            await asyncio.sleep(self.process.chance.uniform(0, _AGAIN_SECONDS))

    async def _call(self, method: str, request: Any) -> Any:
        try:
            return await self._channel.call("workers", _SERVICE + method, request, secret=self._secret)
        except Refused as error:
            if error.code is grpc.StatusCode.ABORTED:
                raise LeaseLost from None
            raise


def logged(offset: int, size: int) -> bytes:
    """What workers write to their log, from an offset on: each byte says where it is."""
    return bytes(number % 251 for number in range(offset, offset + size))


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="mvprune-simulation-"))


@cache
def _state(step: int) -> Path:
    """A folder with a checkpoint."""
    target = _folder() / f"checkpoint-{step}"
    target.mkdir()
    (target / "state").write_bytes(b"%d" % step)
    return target


@cache
def artifact(choice: int) -> Path:
    """A folder with one of the results."""
    target, data = _folder() / f"result-{choice}", b"weights" * (choice + 1)
    target.mkdir()
    (target / "weights").write_bytes(data)
    entry = {
        "path": "weights",
        "size_bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "media_type": "application/octet-stream",
    }
    metrics = {"eval/accuracy": 0.9 - 0.1 * choice}
    manifest = {"files": [entry], "metrics": metrics, "primary_metric": "accuracy", "accounting": {}}
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target
