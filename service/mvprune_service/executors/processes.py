"""Finds and kills processes by a mark in their environment.

A process group does not contain descendants that start a session of their own, as those of Ray and the workers do. But
every descendant inherits the environment, orphans too, and /proc shows it.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_POLL_SECONDS = 0.02


def marked(name: str, value: str) -> set[int]:
    """The live processes of this user that were started with `name=value` in their environment."""
    wanted = f"{name}={value}".encode()
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes()  # empty for a zombie
        except OSError:  # another user's, or ended meanwhile
            continue
        if wanted in environment.split(b"\0"):
            found.add(int(folder.name))
    return found


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
