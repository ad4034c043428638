"""Files of the server that only its user may read."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Any


def open_private(path: Path, mode: str) -> IO[Any]:
    """Opens a file, created with mode 0600. `mode` is that of `open`.

    Raises:
        OSError: it cannot be opened, or is a symbolic link, which could lead to any other file.
    """
    return open(path, mode, opener=_open_no_link)


def _open_no_link(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "must be a regular file, got a symbolic link", path) from None
        raise
