"""A server that can be killed and started again, and clients that never give up."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from mvprune.v1 import job_pb2, job_pb2_grpc

from ..conftest import server_path
from ..neighbours import free_ports
from .counts import COUNTS
from .launch import start_server

LEASE = 1.0  # seconds
PARENT = "projects/default"
TERMINAL = (job_pb2.Job.SUCCEEDED, job_pb2.Job.FAILED, job_pb2.Job.CANCELLED)
STAND_IN = Path(__file__).with_name("stand_in")
TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.use_local_subchannel_pool", 1),
)


class Server:
    """mvprune-server on a home folder, with quick leases; workers are real, their trainers only wait."""

    def __init__(self, folder: Path, *, database: str = "", store: str = "", **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.home = folder / "home"
        self.train, self.validation = folder / "train.tsv", folder / "validation.tsv"
        for file in (self.train, self.validation):
            file.write_text("text\tlabel\ngood\t1\nbad\t0\n")
        ports = free_ports(2)
        self.address = f"127.0.0.1:{ports[0]}"
        self.worker_address = f"127.0.0.1:{ports[1]}"
        self.database = database or f"sqlite:///{self.home / 'mvprune.sqlite'}"
        self.store = store or (self.home / "store").as_uri()
        self.log = folder / "server.log"
        self.process: Any = None
        own = {
            "home": str(self.home),
            "address": self.address,
            "worker_address": self.worker_address,
            "database_url": self.database,
            "store": self.store,
            "executor": "local",
            "roots": str(folder),
            "lease_seconds": str(LEASE),
            "heartbeat_seconds": "0.2",
            "janitor_seconds": "1",
            "drain_seconds": "0",
        }
        self._environment = {
            **os.environ,
            "PYTHONPATH": f"{STAND_IN}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep),
            **{f"MVPRUNE_{name.upper()}": value for name, value in {**own, **settings}.items()},
        }

    def set(self, **settings: str) -> None:
        """Changes settings of the next start."""
        self.database = settings.get("database_url", self.database)
        self._environment |= {f"MVPRUNE_{name.upper()}": value for name, value in settings.items()}

    def start(
        self, failpoints: str = "", environment: Mapping[str, str] | None = None, *, refusal: bool = False
    ) -> None:
        """Starts it, and returns when it serves or has died of a failpoint; where a `refusal` is allowed, when it has
        refused to start too."""
        environment = {**self._environment, "MVPRUNE_FAILPOINTS": failpoints, **(environment or {})}
        self.process = start_server((), environment, self.log)
        eventually(lambda: self._serves() or self.process.exitcode is not None, 60, self.tail)
        assert self.process.exitcode in (None, -signal.SIGKILL, *([1] if refusal else [])), self.tail()

    def wait_killed(self, timeout: float = 60) -> bool:
        """Whether it was killed, by a failpoint, within `timeout` seconds."""
        self.process.join(timeout)
        killed = self.process.exitcode is not None
        assert not killed or self.process.exitcode == -signal.SIGKILL, self.tail()
        COUNTS["kills of the server"] += killed
        return killed

    def kill(self) -> None:
        """kill -9, and wait until it is dead."""
        if self.process is not None and self.process.exitcode is None:
            self.process.kill()
            self.process.join()
            COUNTS["kills of the server"] += 1

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text()[-4000:] if self.log.exists() else "no log"

    def processes(self) -> dict[int, str]:
        """Processes of workers and trainers: pid and command line."""
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) not in (os.getpid(), self.process and self.process.pid):
                try:
                    told = (folder / "cmdline").read_bytes() + b"\0" + (folder / "environ").read_bytes()
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:
                    continue
                if f"{self.home}/".encode() in told:
                    found[int(folder.name)] = command
        return found

    def trainers(self) -> list[int]:
        """Processes that train."""
        return [pid for pid, command in self.processes().items() if "stand_in/trainer.py" in command]

    def supervisors(self) -> list[int]:
        """Processes that hold a lease."""
        return [pid for pid in self._workers() if pid not in self.keepers()]

    def keepers(self) -> list[int]:
        """Parents of supervisors."""
        return [pid for pid, command in self._workers().items() if "executors.keeper" in command]

    def _workers(self) -> dict[int, str]:
        return {pid: command for pid, command in self.processes().items() if command.endswith("-m mvprune_workers ")}

    def _serves(self) -> bool:
        try:
            return bool(json.loads((self.home / "server.json").read_bytes())["pid"] == self.process.pid)
        except (OSError, ValueError):
            return False


class Client:
    """Calls the server until it answers."""

    def __init__(self, server: Server, patience: float = 300) -> None:
        self._dataset = {"train": server_path(server.train), "validation": server_path(server.validation)}
        self._patience = patience
        self._channel = grpc.insecure_channel(server.address, OPTIONS)
        self._jobs = job_pb2_grpc.JobServiceStub(self._channel)

    def create(self, request_id: str, milliseconds: int = 300, kilobytes: int = 1, **policy: Any) -> job_pb2.Job:
        """Submits a job whose training takes that long and whose artifact is that large."""
        spec = {
            "model": "bert-base-uncased",
            "task": "text-classification",
            "dataset": self._dataset,
            "magnitude": {},
            "target_density": 0.1,
            "training": {"max_steps": milliseconds},
            "seed": kilobytes,
        }
        policy = {"resources": {"cpus": 0.01}, "max_attempts": 10, "checkpoint_interval": {"seconds": 1}, **policy}
        request = job_pb2.CreateJobRequest(parent=PARENT, job={"spec": spec, "policy": policy}, request_id=request_id)
        return self._call(self._jobs.CreateJob, request)

    def get(self, name: str) -> job_pb2.Job:
        """Reads a job."""
        return self._call(self._jobs.GetJob, job_pb2.GetJobRequest(name=name))

    def cancel(self, name: str) -> None:
        """Cancels a job, unless it has ended."""
        try:
            self._call(self._jobs.CancelJob, job_pb2.CancelJobRequest(name=name, grace={"seconds": 0}))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise

    def delete(self, name: str) -> None:
        """Deletes a job that has ended."""
        self._call(self._jobs.DeleteJob, job_pb2.DeleteJobRequest(name=name, allow_missing=True))

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return method(request, timeout=5)
            except grpc.RpcError as error:
                if error.code() not in TRANSIENT or time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@dataclass
class Record:
    """What a client knows of a job that it submitted."""

    request_id: str
    name: str = ""
    cancelled: bool = False
    failed: bool = False  # as it must
    deleted: bool = False


@dataclass
class Load:
    """Submits, cancels and deletes jobs in a thread, a few at a time, until it is stopped."""

    server: Server
    live: int = 3
    milliseconds: int = 300
    kilobytes: int = 1
    churn: bool = True  # cancels and deletes too
    records: list[Record] = field(default_factory=list)

    def __enter__(self) -> Load:
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it after the call under way. Raises what went wrong."""
        self._stopping.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def check(self) -> None:
        """Raises what went wrong so far."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        client = Client(self.server)
        try:
            while not self._stopping.is_set():
                self._round(client)
        except BaseException as error:
            self._failure = error
        finally:
            client.close()

    def _round(self, client: Client) -> None:
        open_jobs = [record for record in self.records if not record.deleted][-2 * self.live :]
        ended = [record for record in open_jobs if client.get(record.name).state in TERMINAL]
        if doomed := [record for record in ended if record.cancelled]:  # the others are looked at in the end
            doomed[0].deleted = True
            client.delete(doomed[0].name)
        if len(open_jobs) - len(ended) >= self.live:
            self._stopping.wait(0.1)
            return
        self._submit(client)
        if self.churn:
            doomed = self._submit(client)
            self._stopping.wait(random.choice((0, 0.1, 0.5)))
            doomed.cancelled = True
            client.cancel(doomed.name)

    def _submit(self, client: Client) -> Record:
        record = Record(uuid.uuid4().hex)
        record.name = client.create(record.request_id, self.milliseconds, self.kilobytes).name
        self.records.append(record)
        COUNTS["jobs"] += 1
        return record


def settle(server: Server, records: list[Record], timeout: float = 90) -> None:
    """Waits until all jobs have ended."""
    client = Client(server)
    waiting = [record.name for record in records if not record.deleted]

    def done() -> bool:
        waiting[:] = [name for name in waiting if client.get(name).state not in TERMINAL]
        return not waiting

    eventually(done, timeout, lambda: f"{[str(client.get(name)) for name in waiting[:3]]}\n{server.tail()}")
    client.close()


def eventually(condition: Callable[[], Any], timeout: float, told: Callable[[], str] = str) -> None:
    """Waits for what other processes do."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"it never became true\n{told()}"
        time.sleep(0.02)
