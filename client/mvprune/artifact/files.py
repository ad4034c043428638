"""Files from strangers: opened only where they are files."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


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
