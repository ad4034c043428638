"""Files of the server that only its user may read."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import IO, Any

log = logging.getLogger(__name__)

_OF_OTHERS = 0o077


def open_private(path: Path, mode: str) -> IO[Any]:
    """Opens a file, created with mode 0600. `mode` is that of `open`.

    Raises:
        OSError: it cannot be opened, or is a symbolic link, which could lead to any other file.
    """
    return open(path, mode, opener=_open_no_link)


def make_private(path: Path) -> None:
    """Creates an empty file with mode 0600, or takes all rights of others from one that is there. What cannot be opened
    is left to whoever opens it next; that others keep their rights is logged."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        if os.fstat(descriptor).st_mode & _OF_OTHERS:
            os.fchmod(descriptor, 0o600)
            log.warning("%s could be read by other users; from now on only by its owner", path)
    except OSError as error:
        log.warning("%s can be read by other users: %s", path, error.strerror)
    finally:
        os.close(descriptor)


def _open_no_link(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "must be a regular file, got a symbolic link", path) from None
        raise
