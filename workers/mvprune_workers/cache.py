"""Bounds the cache that the jobs of a machine share: the least recently used entries are removed.

The core's files may be removed at any time. A folder of fetched inputs stays while a process holds it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mvprune_workers.scratch import Scratch

# Folders that contain folders of fetched inputs; the other folders contain the core's files.
BUCKETS, UPLOADS = "buckets", "uploads"
_SHARE = 5  # a fifth of the disk
_OURS = re.compile(r"[0-9a-f]{64}(\.safetensors)?")  # MVPRUNE_CACHE may be a folder with other files


def aside(folder: Path) -> Scratch:
    """A temporary folder beside a folder of the cache: to complete it before it is renamed, or to remove it."""
    return Scratch(folder.parent / ".aside", f"{folder.name}.{os.getpid()}")


def complete(folder: Path, fill: Callable[[Path], None]) -> None:
    """Holds a folder of the cache until this process ends, after `fill` has filled it if it is not there yet.

    It is filled under a temporary name and renamed: whenever it exists, it is complete. Raises what `fill` raises, and
    OSError.
    """
    while not hold(folder):
        with aside(folder) as scratch:
            copy = scratch / folder.name
            copy.mkdir()
            fill(copy)
            try:
                copy.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another job was faster
                    raise


def hold(folder: Path) -> bool:
    """Marks a folder as used now and holds it until this process ends. Returns False if there is none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)  # never released
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
    """Removes the least recently used entries until the rest takes at most `limit_bytes`; 0: a fifth of the disk."""
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
    """Removes an entry. Returns False if a process holds it, or if it belongs to another user."""
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
