"""Files from strangers, opened only where they are files; and files for others, with the usual mode."""

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


def read_limited(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        ArtifactError: it has more.
        OSError: see `open_file`.
    """
    with open_file(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ArtifactError(f"{path.name}: must have at most {limit} bytes, got more")
    return content


def check_free(folder: Path) -> None:
    """Raises ArtifactError unless `folder` is new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArtifactError(f"{folder}: must be a new or empty folder, got one with files")


def give_usual_modes(folder: Path) -> None:
    """Gives all files in a folder the mode of a new file, 0666 without the bits of the umask.

    Some libraries write through temporary files of mode 0600, which only their owner could read (safetensors does).

    Raises:
        OSError: a mode cannot be changed.
    """
    import tempfile  # slow to import

    files = [path for path in folder.rglob("*") if path.is_file()]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        sample = Path(scratch) / "new"
        sample.touch()  # the umask itself can only be read by changing it, for all threads
        mode = stat.S_IMODE(sample.stat().st_mode)
    for path in files:
        path.chmod(mode)
