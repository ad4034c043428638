"""Workers as processes on this machine: for tests, and for small installations without Ray."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from mvprune_service.config import Settings
from mvprune_service.executors import processes
from mvprune_service.executors.base import (
    OUTPUT_BYTES,
    Capacity,
    Executor,
    Launch,
    LaunchRefused,
    Node,
    Observation,
    Phase,
    Refs,
    check_ref,
)
from mvprune_service.executors.keeper import MARK
from mvprune_service.private_files import open_private

_KEPT_SECONDS = 7 * 86_400.0
_LINE = re.compile(rb"^(pid|exit) (-?\d+)$", re.MULTILINE)


class LocalExecutor:
    """An Executor that starts a process per ref, each under a keeper that outlives this object and its process.

    The state is in `folder`, so that any later LocalExecutor on it continues from it:

        refs/REF        locked (flock) while the process runs; its lines: `pid N` (the keeper), then `exit CODE`
        logs/REF.log    stdout and stderr

    Both are kept for a week after the process has ended. The lock is taken before the file appears, so a process that
    was started never looks like one that has ended. The kernel releases the lock however the process ends, so a reused
    process id does no harm.

    It has no GPUs (`capacity` reports 0) and reserves nothing: callers must keep within the capacity.
    """

    name = "local"
    description = "local processes"
    private_folders: tuple[Path, ...] = ()

    def __init__(self, folder: Path, cpus: float | None = None) -> None:
        self._folder = folder.absolute()
        self._refs = self._folder / "refs"
        self._logs = self._folder / "logs"
        self._cpus = float(len(os.sched_getaffinity(0))) if cpus is None else cpus
        for made in (self._refs, self._logs):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)

    def capacity(self) -> Capacity:
        """The CPUs given to this object, or those that this process may use, and all of the machine's memory."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return Capacity((Node(self._cpus, 0.0, memory),))

    def submit(self, launch: Launch) -> None:
        """See Executor.submit."""
        try:
            self._forget_old()
            self._start(launch)
        except OSError as error:
            raise LaunchRefused(
                f"cannot start a process: {error.filename or self._folder}: {error.strerror}"
            ) from error

    def observe(self, ref: str) -> Observation:
        """See Executor.observe."""
        try:
            with (self._refs / check_ref(ref)).open("rb") as file:
                running = _is_locked(file.fileno())
                state = _lines(file.read())
        except FileNotFoundError:
            return Observation(Phase.GONE, detail="no such process was started here")
        if b"exit" in state:
            return Observation(Phase.EXITED, state[b"exit"])
        if running:
            return Observation(Phase.RUNNING)
        return Observation(Phase.GONE, detail="killed together with its keeper, or the machine was restarted")

    def stop(self, ref: str) -> None:
        """See Executor.stop."""
        file = self._refs / check_ref(ref)
        with contextlib.suppress(FileNotFoundError):
            keeper = _lines(file.read_bytes()).get(b"pid")
            alive = processes.marked(MARK, str(file))
            if keeper is not None and keeper in alive:
                processes.send(keeper, signal.SIGTERM)
                return
            for pid in alive:  # without its keeper nothing waits for the grace
                processes.send(pid, signal.SIGKILL)

    def list(self, prefix: str) -> Refs:
        """See Executor.list. What has ended is deleted here, after a week."""
        refs = sorted(path.name for path in self._refs.iterdir() if path.name.startswith(prefix))
        return Refs(tuple(ref for ref in refs if self.observe(ref).phase is Phase.RUNNING))

    def output(self, ref: str) -> bytes:
        """See Executor.output."""
        with contextlib.suppress(FileNotFoundError), (self._logs / f"{check_ref(ref)}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - OUTPUT_BYTES))
            return log.read()
        return b""

    def forget(self, ref: str) -> None:
        """See Executor.forget: nothing, see `list`."""

    def close(self) -> None:
        """Nothing to release; the processes continue."""

    def _start(self, launch: Launch) -> None:
        state = self._refs / launch.ref
        lock = self._claim(state)
        if lock is None:
            return
        keeper = [sys.executable, "-P", "-m", "mvprune_service.executors.keeper", str(lock), str(launch.grace_seconds)]
        try:
            with open_private(self._logs / f"{launch.ref}.log", "wb") as log:
                process = subprocess.Popen(
                    [*keeper, *launch.argv],
                    env={**os.environ, **launch.env, MARK: str(state)},
                    pass_fds=(lock,),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError:
            state.unlink()
            raise
        finally:
            os.close(lock)
        threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie

    def _forget_old(self) -> None:
        for state in self._refs.iterdir():
            with contextlib.suppress(FileNotFoundError):  # forgotten meanwhile
                is_old = state.stat().st_mtime < time.time() - _KEPT_SECONDS
                if is_old and self.observe(state.name).phase is not Phase.RUNNING:
                    (self._logs / f"{state.name}.log").unlink(missing_ok=True)
                    state.unlink()

    def _claim(self, state: Path) -> int | None:
        """A descriptor that holds the lock of the new file `state`, None if there is one already."""
        unnamed = self._folder / f"new-{uuid.uuid4().hex}"
        lock = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.link(unnamed, state)
        except FileExistsError:
            os.close(lock)
            return None
        except OSError:
            os.close(lock)
            raise
        finally:
            unnamed.unlink()
        return lock


def from_settings(settings: Settings, start_cancelled: Callable[[], bool]) -> Executor:
    """See open_executor."""
    return LocalExecutor(settings.home / "processes")


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lines(content: bytes) -> dict[bytes, int]:
    return {name: int(value) for name, value in _LINE.findall(content)}
