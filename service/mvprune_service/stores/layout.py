"""How an artifact lies in a store, how it gets there, and how it is checked.

    blobs/sha256/ab/abcdef...        the files, by content: shared by all artifacts that have them
    manifests/sha256/...             manifest.json, by content: the artifact's identity
    attempts/UID/RESULT.json         the commit marker: written last, once; names the manifest
    attempts/UID/checkpoints/...     see checkpoints.py
    attempts/UID/logs/...            see log_chunks.py
    uploads/UID                      a chunk of what a client sent: of one project, known by a row of `upload_chunks`
    collection/...                   see the service's control/collector.py, control/ownership.py and holds.py

An upload that was cut off has no marker, so nothing refers to what it left.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from mvprune_service.stores.base import BlobStore, ObjectNotFound, Readable, StoreUnavailable

MANIFEST_FILE = "manifest.json"
COLLECTION_KEY = "collection/flag"  # exists while unreferenced blobs and manifests are being deleted
MANIFESTS = "manifests/"
MARKS = "collection/marks/"  # of the databases that have stored something
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 8 << 20
_FILES_AT_A_TIME = 4  # each waits for the disk or the network most of the time


class ArtifactCorrupt(Exception):
    """The store's content differs from its manifest: a file or the manifest is missing, cut or altered."""


def blob_key(sha256: str) -> str:
    """Where the file with this content lies."""
    return f"blobs/sha256/{_hex(sha256)[:2]}/{sha256}"


def manifest_key(sha256: str) -> str:
    """Where the manifest with this content lies."""
    return f"{MANIFESTS}sha256/{_hex(sha256)}"


def marker_key(attempt_uid: str) -> str:
    """Where the commit marker of an attempt lies."""
    return f"attempts/{attempt_uid}/RESULT.json"


def upload_key(chunk_uid: str) -> str:
    """Where a chunk of an upload lies."""
    return f"uploads/{chunk_uid}"


def publish(store: BlobStore, directory: Path, attempt_uid: str, confirm: Callable[[], None] = lambda: None) -> str:
    """Uploads the artifact in `directory` and commits it as the attempt's result; can be repeated.

    Order: the files, the manifest, the marker. `confirm` is called before the marker is written, and may raise to
    prevent it. Returns the SHA-256 of the manifest that the marker names: an attempt has one result, so where an
    earlier call committed another artifact, it is that one's. Raises ArtifactCorrupt if the files are not what the
    manifest says, StoreUnavailable.
    """
    data = (directory / MANIFEST_FILE).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    files = listed_files(parse(data))

    def send(file: StoredFile) -> None:
        path = directory / file.path
        if not path.is_file():
            raise ArtifactCorrupt(f"{file.path}: in the manifest, not in the folder")
        file.check(read_chunks(path))
        store.put_file(blob_key(file.sha256), path, file.sha256)

    def send_again(file: StoredFile) -> None:
        store.put_file(blob_key(file.sha256), directory / file.path, file.sha256)

    _side_by_side(send, files)
    if store.size(COLLECTION_KEY) is not None:
        raise StoreUnavailable(f"{store.url} is being garbage-collected")
    _side_by_side(send_again, files)  # repairs what a garbage collection deleted meanwhile: see control/collector.py
    store.put(manifest_key(digest), data)
    confirm()
    marker = json.dumps({"manifest_sha256": digest}).encode()
    if store.put(marker_key(attempt_uid), marker, if_absent=True):
        return digest
    committed = read_marker(store, attempt_uid)
    if committed is None:
        raise StoreUnavailable(f"{store.url}: the marker of attempt {attempt_uid} is there and is not")
    return committed


def read_marker(store: BlobStore, attempt_uid: str) -> str | None:
    """The SHA-256 of the manifest that an attempt committed, None if it has not. Raises ArtifactCorrupt,
    StoreUnavailable."""
    try:
        data = store.get(marker_key(attempt_uid))
    except ObjectNotFound:
        return None
    marker = parse(data)
    digest = marker.get("manifest_sha256")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise ArtifactCorrupt(f"the marker of attempt {attempt_uid} names no manifest")
    return digest


def verify(store: BlobStore, manifest_sha256: str) -> dict[str, Any]:
    """Reads and hashes every file of an artifact, in chunks. Returns the manifest. Raises ArtifactCorrupt,
    StoreUnavailable."""
    manifest = parse(get_manifest(store, manifest_key(manifest_sha256), manifest_sha256))
    _side_by_side(lambda file: check_file(store, blob_key(file.sha256), file), listed_files(manifest))
    return manifest


def fetch(store: BlobStore, manifest_sha256: str, directory: Path, only: Container[str] | None = None) -> None:
    """Downloads an artifact into a folder, or its manifest and `only` the files of these paths, every byte checked; can
    be repeated. Raises ArtifactCorrupt, StoreUnavailable, OSError."""
    data = get_manifest(store, manifest_key(manifest_sha256), manifest_sha256)
    files = [file for file in listed_files(parse(data)) if only is None or file.path in only]
    directory.mkdir(parents=True, exist_ok=True)
    download(store, files, lambda file: blob_key(file.sha256), directory)
    (directory / MANIFEST_FILE).write_bytes(data)


@dataclass(frozen=True)
class StoredFile:
    """A file as a manifest lists it; `path` is relative, with '/'."""

    path: str
    size_bytes: int
    sha256: str

    def check(self, chunks: Iterable[bytes]) -> None:
        """Raises ArtifactCorrupt unless `chunks` are this file's content."""
        hasher, size = hashlib.sha256(), 0
        for chunk in chunks:
            hasher.update(chunk)
            size += len(chunk)
        if size != self.size_bytes:
            raise ArtifactCorrupt(f"{self.path}: {size} bytes, the manifest says {self.size_bytes}")
        if hasher.hexdigest() != self.sha256:
            raise ArtifactCorrupt(f"{self.path}: SHA-256 {hasher.hexdigest()}, the manifest says {self.sha256}")


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content of a local file."""
    with path.open("rb") as content:
        while chunk := content.read(_CHUNK):
            yield chunk


def download(store: BlobStore, files: Iterable[StoredFile], key: Callable[[StoredFile], str], directory: Path) -> None:
    """Writes `files`, which lie at `key`, below `directory`. Raises ArtifactCorrupt after the file that is."""

    def write(file: StoredFile) -> None:
        path = directory / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as copy:
            check_file(store, key(file), file, copy)

    _side_by_side(write, files)


def get_manifest(store: Readable, key: str, sha256: str) -> bytes:
    """The manifest that lies at `key`. Raises ArtifactCorrupt unless it has this SHA-256, StoreUnavailable."""
    try:
        data = store.get(key)
    except ObjectNotFound:
        raise ArtifactCorrupt(f"manifest {sha256} is missing") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ArtifactCorrupt(f"manifest {sha256} has other content than its name says")
    return data


def _chunks(store: BlobStore, key: str) -> Iterator[bytes]:
    offset = 0
    while chunk := store.read(key, offset, _CHUNK):
        yield chunk
        offset += len(chunk)


def check_file(store: BlobStore, key: str, file: StoredFile, copy: IO[bytes] | None = None) -> None:
    """Reads and hashes the object at `key`, and writes it to `copy`. Raises ArtifactCorrupt unless it is this file,
    StoreUnavailable."""

    def chunks() -> Iterator[bytes]:
        for chunk in _chunks(store, key):
            if copy is not None:
                copy.write(chunk)
            yield chunk

    try:
        file.check(chunks())
    except ObjectNotFound:
        raise ArtifactCorrupt(f"{file.path}: blob {file.sha256} is missing") from None


def _side_by_side(work: Callable[[StoredFile], None], files: Iterable[StoredFile]) -> None:
    """Does `work` for some files at a time. Raises the error of the first file in their order that has one, once none
    is in work; those that were not begun by then are left."""
    with ThreadPoolExecutor(_FILES_AT_A_TIME) as pool:
        begun = [pool.submit(work, file) for file in files]
        try:
            for each in begun:
                each.result()
        finally:
            pool.shutdown(cancel_futures=True)


def parse(data: bytes) -> dict[str, Any]:
    """A JSON object. Raises ArtifactCorrupt."""
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ArtifactCorrupt(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ArtifactCorrupt("not a JSON object")
    return parsed


def listed_files(manifest: dict[str, Any]) -> list[StoredFile]:
    """The manifest's files. Raises ArtifactCorrupt for what could not be written to a folder safely anywhere."""
    entries = manifest.get("files")
    if not isinstance(entries, list) or not entries:
        raise ArtifactCorrupt("the manifest lists no files")
    files: list[StoredFile] = []
    taken = {MANIFEST_FILE}
    for entry in entries:
        match entry:
            case {"path": str(path), "size_bytes": int(size), "sha256": str(sha256)} if _SHA256.fullmatch(sha256):
                pass
            case _:
                raise ArtifactCorrupt(f"a file entry needs path, size_bytes and sha256: {str(entry)[:200]}")
        if not path.isprintable() or "\\" in path or not _is_relative(path) or path.lower() in taken:
            raise ArtifactCorrupt(f"path {path[:200]!r} leaves the artifact's folder or collides with another")
        taken.add(path.lower())
        files.append(StoredFile(path, size, sha256))
    return files


def _is_relative(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and "/".join(parts) == path and ".." not in parts


def _hex(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"SHA-256 {sha256[:100]!r}: 64 lower-case hexadecimal digits")
    return sha256
