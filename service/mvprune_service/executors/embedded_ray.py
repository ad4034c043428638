"""A Ray that the server starts on this machine: the default if no cluster is configured."""

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
from mvprune_service.executors.base import ExecutorNotOpened, ExecutorUnavailable, StartCancelled
from mvprune_service.executors.ray_jobs import RayExecutor
from mvprune_service.private_files import open_private

MARK = "MVPRUNE_EMBEDDED_RAY"
_OBJECT_STORE_BYTES = 100_000_000  # near Ray's minimum: mvprune does not use it
_START_SECONDS = 180.0
_STARTS = 2  # Ray allows itself 30 s for its start, which may be too short on a busy machine
_POLL_SECONDS = 0.1
# Ray's sockets are below its folder. The path of a socket has at most 107 bytes, so TMPDIR may be too long.
_TEMPORARY = "/tmp"  # noqa: S108


@dataclass(frozen=True)
class _Running:
    """Identifies a Ray that was started. Stored in ray.json, readable by its owner only."""

    mark: str
    address: str
    token: str = field(repr=False)
    temporary: str


class EmbeddedRay:
    """Starts and stops a Ray head with `cpus` and `gpus` (default: all of the machine's).

    It listens on the loopback only, on free ports, with a token of its own, and so does not interfere with another Ray
    on the machine. `folder` contains ray.json and ray.log. Ray runs in a session of its own: if the control plane is
    killed, Ray and its jobs continue, and the next control plane's `start` finds them.
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
        """The bearer token of its clients (RAY_AUTH_TOKEN)."""
        return self._started.token

    @property
    def folder(self) -> Path:
        """Its temporary folder, which holds the jobs' credentials."""
        return Path(self._started.temporary)

    def running(self) -> RayExecutor | None:
        """An executor on the Ray that was started with this folder, by any process; None if there is none."""
        left = self._read_state()
        return None if left is None else RayExecutor(left.address, token=left.token)

    def executor(self) -> RayExecutor:
        """An executor on it."""
        return RayExecutor(self.address, token=self.token)

    def start(self, start_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Returns when Ray answers and has its node: at once if a Ray of `folder` is running, else after about 10 s.

        Raises:
            ExecutorNotOpened: Ray does not start; the text has the end of its log.
            StartCancelled: `start_cancelled` returned True.
        """
        left = self._read_state()
        if left is not None:
            if self._answers(left, start_cancelled):
                self._running = left
                return
            self.stop()
        if importlib.util.find_spec("ray") is None:
            raise ExecutorNotOpened("Ray is not installed: pip install 'mvprune[ray]'")
        for _ in range(_STARTS):
            running = _Running(
                mark=secrets.token_hex(16),
                address=f"http://127.0.0.1:{_free_port()}",
                token=secrets.token_hex(32),
                temporary=tempfile.mkdtemp(prefix="mvp-", dir=_TEMPORARY),
            )
            self._write_state(running)
            process = self._launch(running)
            if self._answers(running, start_cancelled, process):
                self._running = running
                return
            alive = process.poll() is None
            process.kill()  # its environment may not show the mark yet
            self.stop()
            if start_cancelled():
                raise StartCancelled
            if alive:
                break
        what = (
            f"does not answer after {_START_SECONDS:.0f} s"
            if alive
            else f"ended at its start, {_STARTS} times, at last with exit code {process.returncode}"
        )
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-5:])
        raise ExecutorNotOpened(f"this machine's Ray {what}. The end of {self._log}:\n{tail}")

    def stop(self) -> None:
        """Kills Ray with all its jobs and removes its temporary folder. Does nothing if no Ray is running.

        Ray itself has nothing to save, and takes half a minute to stop by itself. Stop jobs that must save first.
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
            raise RuntimeError("the embedded Ray must be started first")
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
            # Ray makes its folder readable by everyone; only its owner can read the one above it.
            "temp-dir": f"{running.temporary}/r",
            "num-cpus": self._cpus,
            "num-gpus": self._gpus,
        }
        command = [
            sys.executable,
            "-u",  # the log has what it said before it was killed
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
            "RAY_prestart_worker_first_driver": "false",  # a job gets a worker of its own; idle workers are not used
            "TMPDIR": running.temporary,
        }
        with open_private(self._log, "wb") as log:
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
        self, running: _Running, start_cancelled: Callable[[], bool], process: subprocess.Popen[bytes] | None = None
    ) -> bool:
        """Waits until Ray has a node. Returns False if its processes end, take too long, or the start is cancelled.

        A process that has just been started may not show its mark yet: hence `process`.
        """
        executor = RayExecutor(running.address, token=running.token, timeout=5)
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and not start_cancelled():
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
        except (FileNotFoundError, ValueError):  # truncated by a power failure: then no Ray is running either
            return None

    def _write_state(self, running: _Running) -> None:
        """Call it before the start: then whatever an interrupted start leaves can be found."""
        replace_text(self._state, json.dumps(asdict(running)))


class EmbeddedRayExecutor(RayExecutor):
    """An Executor on an EmbeddedRay that is stopped when the executor is closed."""

    def __init__(self, ray: EmbeddedRay) -> None:
        super().__init__(ray.address, token=ray.token)
        self._ray = ray
        self.description = f"a Ray of its own at {ray.address}"
        self.private_folders = (ray.folder,)

    @classmethod
    def start(cls, folder: Path, start_cancelled: Callable[[], bool]) -> EmbeddedRayExecutor:
        """See EmbeddedRay.start."""
        ray = EmbeddedRay(folder)
        try:
            ray.start(start_cancelled)
        except BaseException:
            ray.stop()
            raise
        return cls(ray)

    def close(self) -> None:
        """Stops Ray with all its jobs."""
        self._ray.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
