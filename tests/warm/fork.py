"""Servers and supervisors that tests start: forks of a process that has imported what they import."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .python import warm_server


class Fork:
    """What a test needs of subprocess.Popen. The process ends with this object."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(4)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0) from None
            self._connection.close()
            (code,) = struct.unpack("i", status or struct.pack("i", signal.SIGKILL))
            self.returncode = os.waitstatus_to_exitcode(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(
    python: str, words: Sequence[object], environment: Mapping[str, str], fds: tuple[int, int, int]
) -> Fork | None:
    """Runs `python SCRIPT …` or `python -m MODULE …` with three descriptors; None if that must be started, as under its
    environment the libraries would be others."""
    asked = {
        "python": python,
        "argv": [str(word) for word in words],
        "environment": dict(environment),
        "folder": str(Path.cwd()),
        "fds": (0, 1, 2),
        "blocked": (),
        "session": False,
    }
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(warm_server()))
    socket.send_fds(connection, [json.dumps(asked).encode()], fds)
    answer = connection.recv(5)
    if answer[:1] == b"1":
        return Fork(connection, *struct.unpack("=xi", answer))
    connection.close()
    return None
