"""Lock files: one process at a time holds a lock, and the kernel releases it however that process ends."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO, Any

from mvprune_service.private_files import open_private


class CannotLock(Exception):
    """The lock cannot be taken; the text says why."""


def lock(path: Path, in_use: str) -> IO[Any]:
    """Takes the lock on `path`. It is held until the returned file is closed or the process ends.

    Args:
        in_use: the text of the error if another process holds the lock.

    Raises:
        CannotLock: another process holds the lock, or the file cannot be opened.
    """
    try:
        file = open_private(path, "a+")
    except OSError as error:
        raise CannotLock(f"cannot lock {path}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise CannotLock(in_use) from None
    return file
