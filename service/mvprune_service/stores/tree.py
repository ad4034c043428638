"""Files below a folder, reached one component of their path at a time: no symbolic link below it is ever followed.

Others may be able to write to a store's folder. A link that they put into it must not choose what the server reads and
writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe in place of a file does not block.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_FILE = (errno.ELOOP, errno.ENXIO)  # of opening a link, a socket


@contextlib.contextmanager
def folders(root: Path, names: Sequence[str], *, make: bool = False) -> Iterator[list[int]]:
    """Descriptors of `root`, which may be a link, and of the folders below it, each in the one before.

    Args:
        make: folders that are missing are made.

    Raises:
        OSError: NotADirectoryError for a link.
    """
    held = [os.open(root, _FOLDER)]
    try:
        for name in names:
            held.append(_enter(held[-1], name, make))
        yield held
    finally:
        for descriptor in held:
            os.close(descriptor)


def _enter(parent: int, name: str, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
    return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)


@contextlib.contextmanager
def regular_file(root: Path, path: Sequence[str]) -> Iterator[int]:
    """A descriptor to read a regular file.

    Raises:
        OSError: FileNotFoundError or NotADirectoryError where there is none, or a link.
    """
    with folders(root, path[:-1]) as held:
        try:
            descriptor = os.open(path[-1], _READ, dir_fd=held[-1])
        except OSError as error:
            if error.errno in _NO_FILE:
                raise FileNotFoundError(error.errno, error.strerror, path[-1]) from None
            raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(errno.ENOENT, "not a regular file", path[-1])
        yield descriptor
    finally:
        os.close(descriptor)


class Draft:
    """A new file in the folder `staging`, to be moved into place once it is whole; `with` removes what was not."""

    def __init__(self, staging: int) -> None:
        self._staging = staging
        self._name = uuid.uuid4().hex
        self._file = -1

    def __enter__(self) -> Draft:
        try:
            self._file = os.open(self._name, _NEW, 0o666, dir_fd=self._staging)
        except OSError:
            self.__exit__()  # a file server may have made it before it failed
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._file >= 0:
            os.close(self._file)
        with contextlib.suppress(OSError):  # moved, or removed by `remove_torn` later
            os.unlink(self._name, dir_fd=self._staging)

    def write(self, data: bytes) -> None:
        """Appends bytes."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def install(self, held: Sequence[int], name: str, *, if_absent: bool) -> bool:
        """Moves the file, on disk by then, into the last of `held` folders, as `name`.

        Returns:
            False where something lies there and is kept, with `if_absent`.
        """
        os.fsync(self._file)
        file, self._file = self._file, -1
        os.close(file)
        installed = True
        if if_absent:
            try:
                os.link(self._name, name, src_dir_fd=self._staging, dst_dir_fd=held[-1])
            except FileExistsError:
                installed = False
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    if stat.S_ISDIR(os.stat(name, dir_fd=held[-1], follow_symlinks=False).st_mode):
                        raise IsADirectoryError(errno.EISDIR, "Is a directory", name) from None
        else:
            os.replace(self._name, name, src_dir_fd=self._staging, dst_dir_fd=held[-1])
        sync(held)
        return installed


def sync(held: Sequence[int]) -> None:
    """Makes what lies in these folders, each in the one before, stay there after a power cut."""
    for folder in reversed(held):
        os.fsync(folder)


def walk(folder: int, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    """Path, from `folder`, and status of every regular file below it whose path starts with `prefix`, which has no
    '/'; hidden ones are left out. What is removed meanwhile may be."""
    for path, below, files, descriptor in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        wanted = prefix if path == "." else ""
        below[:] = [name for name in below if name.startswith(wanted) and not name.startswith(".")]
        for name in files:
            if name.startswith(wanted) and not name.startswith("."):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode):
                        yield os.path.normpath(f"{path}/{name}"), status
