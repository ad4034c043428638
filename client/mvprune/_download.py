"""Download of an artifact: resumable, verified while streaming, visible only when complete.

    out.<sha256>.partial/   grows file by file; a run that breaks off leaves it for the next one
    out/                    appears by one rename

Bytes come by HTTP from the store where the server can give URLs, else through the server itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mvprune._exceptions import DestinationNotEmpty, DownloadError, IntegrityError, UnsafeArtifact
from mvprune._http import read_url
from mvprune._models import Artifact, ArtifactFile
from mvprune._transport import Patience, Transport
from mvprune.v1 import artifact_pb2

MANIFEST = "manifest.json"
STALL_SECONDS = 60.0
_BLOCK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_UNSAFE = re.compile(r"[\\\x00-\x1f\x7f]")


def download(
    transport: Transport, artifact: Artifact, directory: Path, on_progress: Callable[[int, int], None]
) -> Path:
    """Puts the files of an artifact into `directory`: see `Client.download`.

    Raises:
        DownloadError, ServerUnreachable, RequestRefused.
    """
    check_files(artifact)
    directory = directory.expanduser().resolve()
    progress = _Progress(sum(file.size_bytes for file in artifact.files), on_progress)
    try:
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            _verify(directory, artifact, progress)
            return directory
        partial = directory.with_name(f"{directory.name}.{artifact.sha256}.partial")
        partial.mkdir(parents=True, exist_ok=True)
        with _locked(partial):
            for file in artifact.files:
                _fetch(transport, artifact.name, file, partial / file.path, progress)
            partial.rename(directory)
    except OSError as error:
        raise DownloadError(f"{error.filename or directory}: {error.strerror or error}") from error
    return directory


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

    def __init__(self, total: int, report: Callable[[int, int], None]) -> None:
        self._done = 0
        self._total = total
        self._report = report

    def add(self, count: int) -> None:
        self._done += count
        self._report(self._done, self._total)


def _verify(directory: Path, artifact: Artifact, progress: _Progress) -> None:
    there = {str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()}
    if there == {file.path for file in artifact.files}:
        for file in artifact.files:
            digest, size = _digest(directory / file.path)
            if digest.hexdigest() != file.sha256:
                break
            progress.add(size)
        else:
            return
    raise DestinationNotEmpty(
        f"{directory} exists and is not the artifact {artifact.sha256[:12]}: remove it or choose another folder"
    )


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise DownloadError(f"another download is writing {folder}") from None
    finally:
        os.close(descriptor)


def _fetch(transport: Transport, artifact: str, file: ArtifactFile, path: Path, progress: _Progress) -> None:
    """One file, from where an earlier run left it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = _digest(path)
    progress.add(size)
    resumed = size > 0
    with path.open("ab") as out:
        while True:
            if size < file.size_bytes:
                for block in _blocks(transport, artifact, file, size):
                    out.write(block)
                    digest.update(block)
                    size += len(block)
                    progress.add(len(block))
                    if size > file.size_bytes:
                        break
            if size == file.size_bytes and digest.hexdigest() == file.sha256:
                out.flush()
                os.fsync(out.fileno())
                return
            out.truncate(0)
            progress.add(-size)
            if not resumed:
                raise IntegrityError(f"{file.path}: the bytes received do not have the SHA-256 {file.sha256}")
            digest, size, resumed = hashlib.sha256(), 0, False  # what an earlier run left was not good


def _blocks(transport: Transport, artifact: str, file: ArtifactFile, offset: int) -> Iterator[bytes]:
    """Bytes from `offset` on, at least up to the file's size if the store has them."""
    url = _url(transport, artifact, file.path)
    if url is None:
        yield from _read_file(transport, artifact, file.path, offset)
        return
    patience = Patience()
    while offset < file.size_bytes:
        failure = "the connection ended early"
        try:
            for block in read_url(url, offset, STALL_SECONDS):
                patience.renew()
                offset += len(block)
                yield block
        except (OSError, http.client.HTTPException) as error:
            failure = str(error) or type(error).__name__
        if offset < file.size_bytes:
            patience.sleep_or_raise(DownloadError(f"{file.path}: the store does not answer: {failure}"))
            url = _url(transport, artifact, file.path) or url  # it may have expired


def _url(transport: Transport, artifact: str, path: str) -> str | None:
    request = artifact_pb2.GenerateDownloadUrlsRequest(name=artifact, paths=[path])
    answer = transport.call(transport.artifacts.GenerateDownloadUrls, request)
    return next((found.url for found in answer.urls if found.path == path), None)


def _read_file(transport: Transport, artifact: str, path: str, offset: int) -> Iterator[bytes]:
    def start(timeout: float | None) -> Any:
        request = artifact_pb2.ReadFileRequest(name=artifact, path=path, offset=offset)
        return transport.artifacts.ReadFile(request, timeout=timeout)

    for message in transport.stream(start, lambda message: message.end, stall_seconds=STALL_SECONDS):
        data = message.data[max(0, offset - message.offset) :]
        if message.offset > offset:
            raise IntegrityError(f"{path}: bytes from {message.offset} on instead of {offset}")
        offset += len(data)
        if data:
            yield data


def _digest(path: Path) -> tuple[Any, int]:
    """SHA-256 and size of what is there; nothing is empty."""
    digest, size = hashlib.sha256(), 0
    if path.exists():
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                size += len(block)
    return digest, size
