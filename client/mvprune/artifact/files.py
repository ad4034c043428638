"""Files from strangers: opened only where they are files."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from mvprune.artifact.errors import ArtifactError


def open_file(path: Path) -> BufferedReader:
    """Opens a regular file to read it; symbolic links are followed, as a hub's cache has them.

    Raises:
        OSError: there is none, or it is a pipe, a device or a folder: reading those may never end.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def check_free(folder: Path) -> None:
    """Raises ArtifactError unless `folder` is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder} is not a new or empty folder")
