"""Finds and kills processes by a mark in their environment.

A process group does not contain descendants that start a session of their own, as those of Ray and the workers do. But
every descendant inherits the environment, orphans too, and /proc shows it.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_POLL_SECONDS = 0.02


def marked(name: str, value: str) -> set[int]:
    """The live processes of this user that were started with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    processes = (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return {int(folder.name) for folder in processes if wanted in _environment(folder).split(b"\0")}


def _environment(process: Path) -> bytes:
    """Empty once it has ended, or if it is another user's.

    The first thread of a killed process may end before the others. It has no environment then, while they finish what
    they asked of the system, such as a new file.
    """
    with suppress(OSError):
        return _read(process / "environ") or next(filter(None, map(_read, process.glob("task/*/environ"))), b"")
    return b""


def _read(environ: Path) -> bytes:
    """Empty if the thread has ended."""
    with suppress(ProcessLookupError, FileNotFoundError):
        return environ.read_bytes()
    return b""


def kill_marked(name: str, value: str, timeout: float = 10.0) -> None:
    """Sends SIGKILL to all marked processes except this one until none is left. Raises TimeoutError after `timeout`
    seconds: a process in uninterruptible sleep, as on a dead network disk, cannot be killed."""
    deadline = time.monotonic() + timeout
    while left := marked(name, value) - {os.getpid()}:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes that cannot be killed: {sorted(left)}")
        for pid in left:
            send(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal, unless the process has ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
