"""A temporary folder, such as an attempt's: removed at its end or, if the process was killed, by the next worker."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

_LOCK = ".mvprune-attempt.lock"


class Scratch:
    """`with Scratch(root, name) as folder:` makes the folder `root/name`, with a lock that ends with the process.

    Entering first removes the folders of killed workers: those under `root` with a lock file that no process holds.
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
        """Makes and locks the folder. Returns False if another worker removed it before the lock was taken. Raises
        PermissionError if it belongs to another user."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        try:
            held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        except NotADirectoryError:
            raise PermissionError(errno.EPERM, "not a folder of this worker's but a link", self.folder) from None
        try:
            if os.fstat(held).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "another user's folder", self.folder)
            return self._lock_in(held)
        except FileNotFoundError:
            return False
        finally:
            os.close(held)

    def _lock_in(self, folder: int) -> bool:
        self._lock = os.open(_LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(self._lock), (self.folder / _LOCK).lstat()):
                return True
        os.close(self._lock)
        return False

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _remove_if_abandoned(lock: Path) -> None:
    try:
        held = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:  # gone meanwhile, or another user's
        return
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(lock.parent, ignore_errors=True)
    except BlockingIOError:
        pass
    finally:
        os.close(held)
