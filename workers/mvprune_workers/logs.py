"""The attempt's log: a local file that receives the trainer's output and is read by the threads that send it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

_MAX_BYTES = 256 << 20
_CUT = b"\n[the log ends here: it is too long, or the disk is full]\n"


class LogFile:
    """An append-only file. Writers never wait for readers; each reader has an offset of its own."""

    def __init__(self, path: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._file = path.open("a+b", buffering=0)
        self._max_bytes = max_bytes
        self._size = 0
        self._line_open = False
        self._cut = False
        self._finished = False
        self._changed = threading.Condition()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    def append(self, data: bytes) -> None:
        """Adds bytes. Beyond the size limit, or on a full disk, they are dropped: the trainer is not affected."""
        with self._changed:
            self._append(data)

    def say(self, text: str) -> None:
        """Adds a line of the supervisor's own, with the time."""
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')} supervisor: {text}\n".encode()
        with self._changed:
            self._append(b"\n" + line if self._line_open else line)

    def finish(self) -> None:
        """Marks the end of the log for readers."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def read(self, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from `offset`, without waiting."""
        return os.pread(self._file.fileno(), min(limit, max(0, self._size - offset)), offset)

    def follow(self, offset: int, limit: int) -> bytes:
        """Like `read`, but waits for a byte; b"" only at the end of a finished log."""
        with self._changed:
            self._changed.wait_for(lambda: self._size > offset or self._finished)
        return self.read(offset, limit)

    def last_line(self) -> str:
        """The last line that is not blank, at most 200 characters; "" if there is none."""
        tail = self.read(max(0, self._size - 4096), 4096).decode(errors="replace")
        lines = [line.strip() for line in tail.splitlines() if line.strip()]
        return lines[-1][-200:] if lines else ""

    def _append(self, data: bytes) -> None:
        if self._cut or not data:
            return
        if self._size + len(data) > self._max_bytes:
            self._cut = True
            data = _CUT
        try:
            written = self._file.write(data)
        except OSError:
            self._cut = True
            return
        self._cut = self._cut or written < len(data)
        self._size += written
        self._line_open = not data.endswith(b"\n")
        self._changed.notify_all()


def forward(log: LogFile, fd: int) -> None:
    """Copies a log to `fd` until the log is finished or `fd` is closed by its reader."""
    offset = 0
    while data := log.follow(offset, 1 << 16):
        offset += len(data)
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:
            return
