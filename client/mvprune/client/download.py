"""Download of an artifact: in parallel, resumable, verified while it comes, visible only when complete.

out.<sha256>.partial/   grows file by file; a run that breaks off leaves it for the next one
out.<sha256>.parts/     parts of large files that cannot be appended yet
out/                    appears by one rename
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from mvprune.client.fetch import POLL_SECONDS, fetch
from mvprune.client.folder import Folder, Place, check_links, check_system
from mvprune.client.models import Artifact
from mvprune.client.parts import FileInParts
from mvprune.client.source import Source
from mvprune.client.transport import Transport
from mvprune.client.wire import BlockingWire, run
from mvprune.common.exceptions import DestinationNotEmpty, DownloadError, IntegrityError, UnsafeArtifact
from mvprune.common.files import expanded

MANIFEST = "manifest.json"
_MAX_MANIFEST = 20 << 20  # more than a reader takes
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNSAFE = re.compile(r"[\\\x00-\x1f\x7f]")


def download(
    transport: Transport,
    artifact: Artifact,
    directory: Path,
    on_progress: Callable[[int, int], object],
    cancelled: threading.Event,
) -> Path:
    """Puts the files of an artifact into `directory`: see `Client.download`.

    Args:
        transport: over any wire: the download has a connection of its own.
        cancelled: ends it, with nothing written from then on.

    Raises:
        DownloadError, ServerUnreachable, RequestRefused.
    """
    check_system()
    check_files(artifact)
    directory = _real(directory)
    progress = _Progress(sum(file.size_bytes for file in artifact.files), on_progress)
    partial = directory.with_name(f"{directory.name}.{artifact.sha256}.partial")
    try:
        while not _occupied(directory):
            with _locked(partial, cancelled) as folder:
                if folder and not _occupied(directory):
                    _fill(folder, transport, artifact, progress, cancelled)
                    partial.rename(directory)
                    if not folder.is_at(directory):
                        raise DownloadError(f"{directory} must be what was downloaded, got a folder of another process")
                    return directory
        _verify(directory, artifact, progress)
        with contextlib.suppress(OSError):
            partial.rmdir()  # made while another download ended
    except OSError as error:
        raise DownloadError(f"{error.filename or directory}: {error.strerror or error}") from error
    return directory


def manifest(transport: Transport, artifact: Artifact) -> bytes:
    """The manifest of an artifact.

    Args:
        transport: over any wire: a connection of its own is used.

    Raises:
        IntegrityError: it is not the one that the artifact is named by.
        DownloadError, ServerUnreachable, RequestRefused.
    """
    content = small_file(transport, artifact, MANIFEST, _MAX_MANIFEST)
    if hashlib.sha256(content).hexdigest() != artifact.sha256:
        raise IntegrityError(f"{MANIFEST} is not the one that {artifact.name} is named by")
    return content


def small_file(transport: Transport, artifact: Artifact, path: str, most: int) -> bytes:
    """The bytes of one file of an artifact, verified.

    Args:
        transport: as of `manifest`.
        path: of the file.
        most: bytes that are read of it at most.

    Raises:
        IntegrityError: they are not those that the artifact lists; or there are more of them than `most`.
        DownloadError: there is no such file; ServerUnreachable, RequestRefused.
    """
    check_files(artifact)
    file = next((file for file in artifact.files if file.path == path), None)
    if file is None:
        raise DownloadError(f"{artifact.name} has no {path}")
    own = Transport(BlockingWire(transport.endpoint), transport.endpoint, transport.timeout)
    try:
        content = b"".join(Source(own, artifact).blocks(file, 0, min(file.size_bytes, most)))
    finally:
        run(own.wire.close())
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise IntegrityError(f"{path} is not the one that {artifact.name} has")
    return content


def check_destination(directory: Path) -> None:
    """Refuses a folder that no artifact can be downloaded to, before there is one.

    Raises:
        DestinationNotEmpty: it is a file, or has files and no manifest among them.
        DownloadError: it cannot be made.
    """
    directory = _real(directory)
    if _occupied(directory) and not (directory / MANIFEST).is_file():
        raise DestinationNotEmpty(f"{directory} exists and is not an artifact: remove it or choose another folder")
    parent = next(one for one in directory.parents if one.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise DownloadError(f"{directory}: {parent} is not a folder that can be written")


def _real(directory: Path) -> Path:
    """Where a folder is or will be. Raises DownloadError."""
    try:
        path = expanded(directory)
        check_links(path.absolute())
        return path.resolve()
    except (OSError, RuntimeError):
        raise DownloadError(f"{directory}: its symbolic links lead in a circle") from None


def check_files(artifact: Artifact) -> None:
    """Refuses a list of files that must not be written or cannot be verified.

    Raises:
        UnsafeArtifact: a path that is empty, absolute or leaves the folder, has a backslash or a control character,
            or meets another one on a file system that ignores case.
        IntegrityError: a file without a digest, or a manifest that is not the one the artifact is named by.
    """
    files: set[str] = set()
    folders: dict[str, str] = {}
    for file in artifact.files:
        path = file.path
        if _UNSAFE.search(path) or any(part in ("", ".", "..") for part in path.split("/")):
            raise UnsafeArtifact(f"refused: the artifact has a file with the path {path!r}")
        parents = [str(parent) for parent in PurePosixPath(path).parents if parent.name]
        if path.casefold() in files or any(folders.setdefault(one.casefold(), one) != one for one in parents):
            raise UnsafeArtifact(f"refused: the artifact's path {path!r} meets another one")
        files.add(path.casefold())
        if not _SHA256.fullmatch(file.sha256) or file.size_bytes < 0:
            raise IntegrityError(f"refused: the artifact gives no SHA-256 and size for {path!r}")
    if files & folders.keys():
        raise UnsafeArtifact(f"refused: {sorted(files & folders.keys())[0]!r} is both a file and a folder")
    manifest = next((file for file in artifact.files if file.path == MANIFEST), None)
    if manifest is None or manifest.sha256 != artifact.sha256:
        raise IntegrityError(f"refused: {MANIFEST} is not the one that {artifact.name} is named by")


class _Progress:
    """Bytes there, of all."""

    def __init__(self, total: int, report: Callable[[int, int], object]) -> None:
        self._done = 0
        self._total = total
        self._report = report

    def add(self, count: int) -> None:
        self._done += count
        self._report(self._done, self._total)


def _occupied(directory: Path) -> bool:
    return directory.exists() and (not directory.is_dir() or any(directory.iterdir()))


def _verify(directory: Path, artifact: Artifact, progress: _Progress) -> None:
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}
    if there == {file.path for file in artifact.files}:
        for file in artifact.files:
            with (directory / file.path).open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != file.sha256:
                    break
            progress.add(file.size_bytes)
        else:
            return
    raise DestinationNotEmpty(
        f"{directory} exists and is not the artifact {artifact.sha256[:12]}: remove it or choose another folder"
    )


@contextlib.contextmanager
def _locked(path: Path, cancelled: threading.Event) -> Iterator[Folder | None]:
    """Makes a folder and waits until no other download has it; gives None if that one has renamed it by then."""
    with contextlib.suppress(FileExistsError):  # a file: the next call says so
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder = Folder(path)
    except FileNotFoundError:
        yield None
        return
    # Of its own: threads that outlive the download keep the folder open, and would keep the lock.
    lock = os.open(".", os.O_RDONLY, dir_fd=folder.descriptor)
    try:
        while not _lock(lock):
            if cancelled.wait(POLL_SECONDS):
                raise DownloadError("cancelled")
        yield folder if folder.is_at(path) else None
    finally:
        os.close(lock)


def _lock(descriptor: int) -> bool:
    import fcntl  # Windows has none

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _fill(
    folder: Folder, transport: Transport, artifact: Artifact, progress: _Progress, cancelled: threading.Event
) -> None:
    """Fetches what is missing."""
    parts = Folder(folder.path.with_suffix(".parts"))
    own = Transport(BlockingWire(transport.endpoint), transport.endpoint, transport.timeout)
    try:
        source = Source(own, artifact)
        files = [
            FileInParts(file, _place(folder, file.path), parts, str(number), splits=source.has_ranges)
            for number, file in enumerate(artifact.files)
        ]
        fetch(source, files, progress.add, cancelled)
    finally:
        run(own.wire.close())
    shutil.rmtree(parts.path)


def _place(folder: Folder, path: str) -> Place:
    *parents, name = path.split("/")
    return Place(folder.below(parents), name)
