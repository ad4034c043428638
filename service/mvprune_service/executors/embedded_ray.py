"""A Ray of our own on this machine: the default where no cluster is configured."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mvprune.common.files import replace_text
from mvprune_service.executors import processes
from mvprune_service.executors.base import ExecutorUnavailable
from mvprune_service.executors.ray import RayExecutor

MARK = "MVPRUNE_EMBEDDED_RAY"
_OBJECT_STORE_BYTES = 100_000_000  # near Ray's least: nothing of ours goes through it
_START_SECONDS = 180.0
_STARTS = 2  # Ray gives itself 30 s, which a busy machine may not make at once
_POLL_SECONDS = 0.1
# Ray's sockets lie below its folder and a socket's path has 107 bytes: TMPDIR may be too long.
_TEMPORARY = "/tmp"  # noqa: S108


class EmbeddedRayFailed(Exception):
    """The Ray of this machine does not start; the text has the end of its log."""


class StartUnwanted(Exception):
    """A start that was given up because nobody waits for it any more. Nothing of it is left."""


@dataclass(frozen=True)
class _Running:
    """What is needed to find and use a started Ray again. Kept in ray.json, readable by its owner alone."""

    mark: str
    address: str
    token: str = field(repr=False)
    temporary: str


class EmbeddedRay:
    """Starts and stops a Ray head with `cpus` and `gpus` (default: what the machine has).

    It listens on the loopback alone, on free ports, with a token of its own, and so disturbs no other Ray of the
    machine. `folder` keeps ray.json and ray.log. It runs in a session of its own: a control plane that is killed leaves
    it and its jobs running, and the next one's `start` takes them over.
    """

    def __init__(self, folder: Path, *, cpus: int | None = None, gpus: int | None = None) -> None:
        self._state = folder / "ray.json"
        self._log = folder / "ray.log"
        self._cpus = cpus
        self._gpus = gpus
        self._running: _Running | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def address(self) -> str:
        """http://127.0.0.1:PORT of the dashboard."""
        return self._started.address

    @property
    def token(self) -> str:
        """What a client of it sends as its bearer token (RAY_AUTH_TOKEN)."""
        return self._started.token

    @property
    def folder(self) -> Path:
        """Its temporary folder, which holds the jobs' credentials."""
        return Path(self._started.temporary)

    def executor(self) -> RayExecutor:
        """An executor on it."""
        return RayExecutor(self.address, token=self.token)

    def start(self, unwanted: Callable[[], bool] = lambda: False) -> None:
        """Returns when it answers and has its node: at once where a Ray of `folder` runs already, else after some
        10 s. Raises EmbeddedRayFailed, and StartUnwanted soon after `unwanted` begins to say so."""
        left = self._read_state()
        if left is not None:
            if self._answers(left, unwanted):
                self._running = left
                return
            self.stop()
        if importlib.util.find_spec("ray") is None:
            raise EmbeddedRayFailed("Ray is not installed: pip install 'mvprune[ray]'")
        for _ in range(_STARTS):
            running = _Running(
                mark=secrets.token_hex(16),
                address=f"http://127.0.0.1:{_free_port()}",
                token=secrets.token_hex(32),
                temporary=tempfile.mkdtemp(prefix="mvp-", dir=_TEMPORARY),
            )
            self._write_state(running)
            process = self._launch(running)
            if self._answers(running, unwanted, process):
                self._running = running
                return
            alive = process.poll() is None
            process.kill()  # its mark may not show yet
            self.stop()
            if unwanted():
                raise StartUnwanted
            if alive:
                break
        what = f"does not answer after {_START_SECONDS:.0f} s" if alive else f"ended at its start, {_STARTS} times"
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])
        raise EmbeddedRayFailed(f"this machine's Ray {what}. The end of {self._log}:\n{tail}")

    def stop(self) -> None:
        """Kills it with all its jobs and removes its temporary folder; harmless where nothing runs.

        Ray has nothing to save, and takes half a minute for a polite end; stop jobs that have something to save first.
        """
        running, self._running = self._read_state(), None
        if running is None:
            return
        processes.kill_marked(MARK, running.mark)
        shutil.rmtree(running.temporary, ignore_errors=True)
        self._state.unlink(missing_ok=True)

    @property
    def _started(self) -> _Running:
        if self._running is None:
            raise RuntimeError("the embedded Ray is not started")
        return self._running

    def _launch(self, running: _Running) -> subprocess.Popen[bytes]:
        flags = {
            "node-ip-address": "127.0.0.1",
            "port": 0,
            "ray-client-server-port": _free_port(),  # it cannot be switched off
            "dashboard-host": "127.0.0.1",
            "dashboard-port": running.address.rpartition(":")[2],
            "dashboard-agent-listen-port": 0,
            "include-log-monitor": "false",
            "log-color": "false",
            "object-store-memory": _OBJECT_STORE_BYTES,
            # Ray opens its folder to everyone; the one above it is ours alone.
            "temp-dir": f"{running.temporary}/r",
            "num-cpus": self._cpus,
            "num-gpus": self._gpus,
        }
        command = [
            sys.executable,
            "-P",
            "-m",
            "ray.scripts.scripts",
            "start",
            "--head",
            "--block",
            "--disable-usage-stats",
            "--no-monitor",  # the autoscaler's
        ]
        command += [f"--{name}={value}" for name, value in flags.items() if value is not None]
        env = {
            **os.environ,
            MARK: running.mark,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": running.token,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # otherwise the loopback is replaced by the machine's address
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_prestart_worker_first_driver": "false",  # a job gets a worker of its own, idle ones are not used
            "TMPDIR": running.temporary,
        }
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=running.temporary,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie
        return process

    def _answers(
        self, running: _Running, unwanted: Callable[[], bool], process: subprocess.Popen[bytes] | None = None
    ) -> bool:
        """Waits while its processes live until it has a node. False if they end, take too long or are unwanted.

        A process that has just been started may not show its mark yet: hence `process`.
        """
        executor = RayExecutor(running.address, token=running.token, timeout=5)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and not unwanted():
            if (process is None or process.poll() is not None) and not processes.marked(MARK, running.mark):
                return False
            with contextlib.suppress(ExecutorUnavailable):
                if executor.capacity().cpus > 0:
                    return True
            time.sleep(_POLL_SECONDS)
        return False

    def _read_state(self) -> _Running | None:
        try:
            return _Running(**json.loads(self._state.read_text()))
        except (FileNotFoundError, ValueError):  # cut off by a power failure: then no Ray is left either
            return None

    def _write_state(self, running: _Running) -> None:
        """Before the start, so that a start that is cut off leaves nothing that cannot be found."""
        replace_text(self._state, json.dumps(asdict(running)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
