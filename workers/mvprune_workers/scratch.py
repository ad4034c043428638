"""A folder for what is temporary, as of one attempt, removed at the end and, after a kill, by the next worker."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType

_LOCK = ".mvprune-attempt.lock"


class Scratch:
    """`with Scratch(root, name) as folder:` a folder `root/name` of its own, held by a lock that dies with the process.

    Entering first removes what killed workers left: folders under `root` with a lock file that nobody holds.
    """

    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        self.folder = root / name
        self._lock = -1

    def __enter__(self) -> Path:
        self._root.mkdir(parents=True, exist_ok=True)
        for leftover in self._root.glob(f"*/{_LOCK}"):
            _remove_if_abandoned(leftover)
        while not self._hold():
            pass
        return self.folder

    def _hold(self) -> bool:
        """Makes and locks the folder; False if another worker swept it before the lock was taken."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / _LOCK
        try:
            self._lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:
            return False
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            if os.fstat(self._lock).st_ino == path.stat().st_ino:
                return True
        except FileNotFoundError:
            pass
        os.close(self._lock)
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _remove_if_abandoned(lock: Path) -> None:
    try:
        held = os.open(lock, os.O_RDWR)
    except OSError:  # gone meanwhile, or another user's
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.parent, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(held)
