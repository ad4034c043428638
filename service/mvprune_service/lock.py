"""Lock files: one process at a time, whatever becomes of it."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO


class InUse(Exception):
    """Another process holds the lock."""


def lock(path: Path, text: str) -> IO[str]:
    """The lock on `path`, held until the file is closed or the process ends. Raises InUse with `text`, OSError."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InUse(text) from None
    return file
