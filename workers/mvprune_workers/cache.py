"""What the jobs of a machine share does not grow for ever: what was used longest ago makes room for the rest.

The core's files may go at any time. A folder fetched from a bucket stays while a process holds it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from mvprune_workers.scratch import Scratch

BUCKETS = "buckets"  # the folder of such folders; the others hold the core's files
_SHARE = 5  # of the disk: a fifth
_OURS = re.compile(r"[0-9a-f]{64}(\.safetensors)?")  # the folder may have been chosen badly


def aside(folder: Path) -> Scratch:
    """Where a folder of the cache is made, to be renamed once it is whole, or goes before it is removed."""
    return Scratch(folder.parent / ".aside", f"{folder.name}.{os.getpid()}")


def hold(folder: Path) -> bool:
    """Keeps a folder, which counts as used now, until this process ends; False if there is none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # and never let go
    if not _is_at(descriptor, folder):  # it was moved aside just before
        os.close(descriptor)
        return False
    with suppress(PermissionError):  # another user's
        os.utime(descriptor)
    return True


def _is_at(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    except FileNotFoundError:
        return False


def trim(cache: Path, limit_bytes: float) -> None:
    """Removes what was used longest ago until the rest takes `limit_bytes` at most; 0: a fifth of the disk."""
    with suppress(OSError):  # there is no cache yet, or another process removes the same
        limit = limit_bytes or shutil.disk_usage(cache).total / _SHARE
        entries = [path for path in cache.glob("*/*") if _OURS.fullmatch(path.name)]
        sizes = {path: _size(path) for path in sorted(entries, key=lambda path: path.stat().st_mtime)}
        excess = sum(sizes.values()) - limit
        for path, size in sizes.items():
            if excess > 0 and _remove(path):
                excess -= size


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]))


def _remove(path: Path) -> bool:
    """False where a process holds it, or where it is another user's."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except PermissionError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with aside(path) as folder:
            path.rename(folder / path.name)
    except (BlockingIOError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True
