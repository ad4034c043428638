"""Folders and files whose names others can foretell, such as those of a download in /tmp.

Whoever prepared one must not choose where bytes go, nor change them afterwards. So each is reached through the folder
that holds it, no symbolic link is followed, and what belongs to somebody else is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import stat
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mvprune.common.exceptions import DownloadError

# Windows has none of these: the module can be imported there, and `check_system` refuses the download.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)
_NO_FOLDER = (errno.ELOOP, errno.ENOTDIR)
_NO_FILE = (errno.ELOOP, errno.EISDIR, errno.ENXIO)
_REMEDY = "remove it, or choose another folder to download to"


def check_system() -> None:
    """Refuses a system on which files cannot be opened below an open folder, such as Windows.

    Raises:
        DownloadError: this is one.
    """
    if not {os.open, os.mkdir, os.stat, os.unlink} <= os.supports_dir_fd:
        raise DownloadError(
            f"the system must open files relative to a folder, got {platform.system() or 'an unknown system'}; "
            "download on Linux or macOS, or in the Windows Subsystem for Linux"
        )


class Folder:
    """A folder that is held open. It is closed when nobody refers to it any more: a thread may outlive its download.

    Raises:
        DownloadError: its parent is missing or takes no folders; it is a symbolic link or no folder; or it was there
            already, and another user's or open to everyone's changes.
        OSError: it cannot be made.
    """

    def __init__(self, path: Path, *, within: Folder | None = None) -> None:
        self.path = path
        self.descriptor: int
        name = path.name if within else path
        inside = within.descriptor if within else None
        made = True
        try:
            os.mkdir(name, 0o775, dir_fd=inside)
        except FileExistsError:
            made = False
        except FileNotFoundError:  # unlike that of os.open: another download has not taken it
            raise DownloadError(f"{path} cannot be made: {path.parent} is not there, or takes no folders") from None
        try:
            self.descriptor = os.open(name, os.O_RDONLY | _DIRECTORY | _SAFE, dir_fd=inside)
        except OSError as error:
            if error.errno in _NO_FOLDER:
                raise DownloadError(f"{path} must be a folder, got a symbolic link or a file: {_REMEDY}") from None
            raise
        weakref.finalize(self, os.close, self.descriptor)
        if not made:
            self._check_ours()

    def below(self, names: Sequence[str]) -> Folder:
        """A folder in this one, in the last of these, each in the one before; made where it is missing."""
        folder = self
        for name in names:
            folder = Folder(folder.path / name, within=folder)
        return folder

    def is_at(self, path: Path) -> bool:
        """Whether the folder is what lies at `path`."""
        try:
            return os.path.samestat(path.lstat(), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def _check_ours(self) -> None:
        status = os.fstat(self.descriptor)
        if status.st_uid != os.geteuid():
            raise DownloadError(f"{self.path} must belong to you, got a folder of the user {status.st_uid}: {_REMEDY}")
        if status.st_mode & stat.S_IWOTH:
            raise DownloadError(
                f"{self.path} must be writable by you only, got one that all users can change: {_REMEDY}"
            )


def check_links(path: Path) -> None:
    """Refuses a path that a link leads away which another user put into a folder that all may write to, such as /tmp:
    what Linux does when a file is opened there (protected_symlinks).

    Raises:
        DownloadError: there is such a link.
        OSError: a folder cannot be read.
    """
    for link in (path, *path.parents):
        if link.is_symlink():
            folder, owner = link.parent.stat(), link.lstat().st_uid
            is_shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
            if is_shared and owner not in (os.geteuid(), folder.st_uid):
                raise DownloadError(f"{link} must not be a link of another user's, got one of the user {owner}")


@dataclass(frozen=True)
class Place:
    """Where a file lies, or will."""

    folder: Folder
    name: str

    @property
    def path(self) -> Path:
        """For people."""
        return self.folder.path / self.name

    @property
    def size(self) -> int:
        """Bytes of the file; 0 where there is none."""
        try:
            return os.stat(self.name, dir_fd=self.folder.descriptor, follow_symlinks=False).st_size
        except FileNotFoundError:
            return 0

    def open(self, mode: str) -> IO[bytes]:
        """As `open` does, in a mode that empties no file.

        Raises:
            DownloadError: it is a symbolic link or no regular file; or it has other names or another owner than the
                folder, or is open to everyone's changes.
            OSError: it cannot be opened.
        """
        return open(self.name, mode, opener=self._opened)

    def remove(self) -> None:
        """Removes the file, if there is one."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name, dir_fd=self.folder.descriptor)

    def _opened(self, name: str, flags: int) -> int:
        try:
            descriptor = os.open(name, flags | _SAFE, 0o664, dir_fd=self.folder.descriptor)
        except OSError as error:
            if error.errno in _NO_FILE:
                raise DownloadError(
                    f"{self.path} must be a file, got something else: remove {self.folder.path}"
                ) from None
            raise
        status, folder = os.fstat(descriptor), os.fstat(self.folder.descriptor)
        is_ours = status.st_uid == folder.st_uid and status.st_nlink == 1 and not status.st_mode & stat.S_IWOTH
        if not (is_ours and stat.S_ISREG(status.st_mode)):
            os.close(descriptor)
            raise DownloadError(
                f"{self.path} must be a file that only you can change, got something else: remove {self.folder.path}"
            )
        return descriptor
