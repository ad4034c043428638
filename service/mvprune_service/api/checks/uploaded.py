"""A project's uploads for the checks of a request: the same checks as of files on the server.

Of a model only what `inspect_model` and `inspect_mask` read is fetched from the store. A data file is fetched whole,
and kept for a while: the jobs of a script have the same.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sqlalchemy import Connection

from mvprune.artifact.masks import READ_WHOLE, Inspect
from mvprune.data.textfiles import suffix_of
from mvprune.sources.known_models import ModelSize
from mvprune.sources.model_folder import MAX_HEADER_BYTES
from mvprune.sources.references import InvalidReference
from mvprune.sources.uploads import CHUNK_BYTES, File, Kind, Reference, is_not_sent_yet, parse
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.db import uploads
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.uploads import ChunkRow, UploadRow
from mvprune_service.db.upload_uses import NoUpload
from mvprune_service.ids import UploadName
from mvprune_service.stores.base import BlobStore, ObjectNotFound
from mvprune_service.stores.layout import upload_key

_MODEL_BYTES = 512 << 20  # of a model's headers and JSON files: each takes memory and time
_SMALL_BYTES = 1024  # of other files: enough to know a pointer of git-lfs
_KEPT_MODELS = 1_000  # results
_KEPT_BYTES = 1 << 30  # of data files
_WHAT = {Kind.MODEL: "a model's folder", Kind.DATA: "a data file"}


class UploadReader:
    """Reads uploads for checks.

    Args:
        lost: notes chunks that the store has lost.
        folder: for what is fetched. It is emptied here: what an earlier server left is of no use.
    """

    def __init__(self, db: Database, store: BlobStore, lost: LostChunks, folder: Path) -> None:
        self._db = db
        self._store = store
        self._lost = lost
        self._folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        self._lock = threading.Lock()
        self._models: OrderedDict[tuple[Reference, Inspect], ModelSize | str] = OrderedDict()  # sizes, or what is wrong
        self._files: OrderedDict[str, _Kept] = OrderedDict()  # by digest

    @contextmanager
    def of_project(self, project: str, *, may_be_missing: bool) -> Iterator[Uploaded]:
        """The uploads of a project, for one request. Enter it on the event loop, use the result on another thread.

        Args:
            may_be_missing: whether a job may refer to an upload that is not complete. It is not checked then.
        """
        uploaded = Uploaded(self, project, asyncio.get_running_loop(), may_be_missing=may_be_missing)
        try:
            yield uploaded
        finally:
            with self._lock:
                uploaded.is_over = True
                self._release(uploaded.held)

    def find(self, name: UploadName, loop: asyncio.AbstractEventLoop) -> Stored | None:
        """An upload and its chunks. Blocks; raises DatabaseUnavailable."""
        return asyncio.run_coroutine_threadsafe(self._db.read(_stored, name), loop).result()

    def note_lost(self, found: Stored, loop: asyncio.AbstractEventLoop) -> None:
        """Notes which chunks of an upload the store has lost. Blocks; raises DatabaseUnavailable, StoreUnavailable."""
        noting = self._lost.note(found.row.project, found.chunks.values(), by_content=False)
        asyncio.run_coroutine_threadsafe(noting, loop).result()

    def size_of(self, reference: Reference, found: Stored, inspect: Inspect) -> ModelSize:
        """The size that `inspect` finds of a model. The content of a digest never changes, so each is looked at once.
        Blocks; raises InvalidReference, ChunkLost, StoreUnavailable."""
        with self._lock:
            known = self._models.get((reference, inspect))
        if known is None:
            known = self._inspect(reference, found, inspect)
            with self._lock:
                self._models[reference, inspect] = known
                if len(self._models) > _KEPT_MODELS:
                    self._models.popitem(last=False)
        if isinstance(known, str):
            raise InvalidReference(known)
        return known

    def hold(self, uploaded: Uploaded, reference: Reference, found: Stored) -> Path:
        """A data file on this machine, which stays until the request ends. Blocks; raises ChunkLost,
        StoreUnavailable."""
        digest, (file,) = found.row.digest, found.row.described()
        with self._lock:
            if digest in self._files:
                return self._held(uploaded, digest)
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        path = folder / file.path
        try:
            _copy(self._store, found, file, path, file.size_bytes)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        with self._lock:
            if digest in self._files:  # another request was faster
                shutil.rmtree(folder, ignore_errors=True)
            else:
                self._files[digest] = _Kept(path, file.size_bytes)
            return self._held(uploaded, digest)

    def _held(self, uploaded: Uploaded, digest: str) -> Path:
        kept = self._files[digest]
        if not uploaded.is_over:  # else the call was cancelled: nobody waits for what its thread still does
            kept.users += 1
            uploaded.held.append(digest)
        self._files.move_to_end(digest)
        return kept.path

    def _release(self, digests: list[str]) -> None:
        for digest in digests:
            self._files[digest].users -= 1
        total = sum(kept.size for kept in self._files.values())
        for digest, kept in list(self._files.items()):
            if total > _KEPT_BYTES and not kept.users:
                del self._files[digest]
                shutil.rmtree(kept.path.parent, ignore_errors=True)
                total -= kept.size

    def _inspect(self, reference: Reference, found: Stored, inspect: Inspect) -> ModelSize | str:
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            folder = Path(scratch)
            try:
                left = _MODEL_BYTES
                for file in found.row.described():
                    needed = _needed(self._store, found, file)
                    if (left := left - needed) < 0:
                        rule = f"at most {_MODEL_BYTES:,} bytes in its JSON files and the headers of its weights"
                        return f"the model must have {rule}, got more in {str(reference)!r}"
                    _copy(self._store, found, file, folder / file.path, needed)
                return inspect(folder)
            except InvalidReference as error:
                return str(error).replace(str(folder), str(reference))


@contextmanager
def uploads_of(reader: UploadReader | None, project: str, *, may_be_missing: bool) -> Iterator[Uploaded | None]:
    """See UploadReader.of_project; None without a reader."""
    if reader is None:
        yield None
    else:
        with reader.of_project(project, may_be_missing=may_be_missing) as uploaded:
            yield uploaded


class ChunkLost(Exception):
    """The store has lost a chunk of an upload."""


class _Kept:
    """A data file on this machine, and how many requests use it."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self.users = 0


class Stored(NamedTuple):
    """A complete upload with its chunks."""

    row: UploadRow
    chunks: dict[str, ChunkRow]


class Uploaded:
    """The uploads of a project, as one request refers to them.

    Attributes:
        held: digests of the data files that the request uses.
        is_over: whether the request has ended.
        notes: what was not checked.
    """

    def __init__(
        self, reader: UploadReader, project: str, loop: asyncio.AbstractEventLoop, *, may_be_missing: bool
    ) -> None:
        self._reader = reader
        self._project = project
        self._loop = loop
        self._may_be_missing = may_be_missing
        self._found: dict[str, Stored | None] = {}
        self.held: list[str] = []
        self.is_over = False
        self._paths: dict[str, Path] = {}
        self.notes: list[str] = []

    def size_of(self, text: str, what: str, inspect: Inspect) -> ModelSize | None:
        """The size of a model; None where it is not known yet. Blocks.

        Args:
            text: the reference.
            what: it is to the job, for notes.
            inspect: looks into its folder.

        Raises:
            InvalidReference: the project has no such model, or one that cannot be used.
            StoreUnavailable: see BlobStore.
        """
        reference, found = self._look_up(text, Kind.MODEL, what)
        if found is None:
            return None
        try:
            return self._reader.size_of(reference, found, inspect)
        except ChunkLost:
            self._lose(reference, found, what)
            return None

    def path_of(self, text: str, what: str, limit: int) -> Path | None:
        """Where a data file can be read here until the request ends; None where it is not known yet, or has more than
        `limit` bytes. As `size_of` otherwise."""
        reference, found = self._look_up(text, Kind.DATA, what)
        if found is None:
            return None
        if found.row.total_bytes > limit:
            self._note(f"not opened here: {reference.name}, larger than {limit >> 20} MiB; the worker checks it")
            return None
        if reference.digest not in self._paths:
            try:
                self._paths[reference.digest] = self._reader.hold(self, reference, found)
            except ChunkLost:
                self._lose(reference, found, what)
                return None
        return self._paths[reference.digest]

    def _look_up(self, text: str, kind: Kind, what: str) -> tuple[Reference, Stored | None]:
        reference = parse(text)
        if reference.digest not in self._found:
            name = UploadName(self._project, reference.digest)
            self._found[reference.digest] = self._reader.find(name, self._loop)
        found = self._found[reference.digest]
        if found is None:
            self._miss(reference, what)
        elif found.row.kind is not kind:
            raise InvalidReference(f"must be {_WHAT[kind]}, got {text!r}, which is {_WHAT[found.row.kind]}")
        elif kind is Kind.DATA and (suffix := suffix_of(Path(found.row.files[0]["path"]))) != suffix_of(
            Path(reference.name)
        ):
            raise InvalidReference(f"must be a name that ends in {suffix!r}, as that of the file, got {text!r}")
        return reference, found

    def _lose(self, reference: Reference, found: Stored, what: str) -> None:
        """Goes on as if the upload had never been complete."""
        self._reader.note_lost(found, self._loop)
        self._found[reference.digest] = None
        self._miss(reference, what)

    def _miss(self, reference: Reference, what: str) -> None:
        """Notes that an upload is not complete. Raises InvalidReference where it must be."""
        if not self._may_be_missing:
            raise InvalidReference(str(NoUpload(str(reference))))
        self._note(is_not_sent_yet(what, reference.name))

    def _note(self, note: str) -> None:
        self.notes += [note] if note not in self.notes else []


def _stored(conn: Connection, name: UploadName) -> Stored | None:
    """A complete upload, as it is at one moment."""
    row = uploads.upload_named(conn, name)
    return None if row is None or row.ready_us is None else Stored(row, uploads.chunks_of(conn, name))


def _needed(store: BlobStore, found: Stored, file: File) -> int:
    """How many bytes of a model's file `inspect_model` or `inspect_mask` reads, from its beginning."""
    if file.path.endswith(".safetensors"):
        length = b"".join(_pieces(store, found, file, 8))
        header = int.from_bytes(length, "little")
        return min(file.size_bytes, 8 + header) if header <= MAX_HEADER_BYTES else min(file.size_bytes, 8)
    return min(file.size_bytes, READ_WHOLE.get(PurePosixPath(file.path).name, _SMALL_BYTES) + 1)


def _copy(store: BlobStore, found: Stored, file: File, target: Path, size: int) -> None:
    """Writes the first `size` bytes of a file, and a hole for the rest."""
    target.parent.mkdir(exist_ok=True)
    with target.open("xb") as copy:
        for piece in _pieces(store, found, file, size):
            copy.write(piece)
        copy.truncate(file.size_bytes)


def _pieces(store: BlobStore, found: Stored, file: File, size: int) -> Iterator[bytes]:
    """The first `size` bytes of a file. Raises ChunkLost where the store does not have them."""
    left = min(size, file.size_bytes)
    for sha256 in file.chunks:
        if not left:
            return
        piece = b""
        with suppress(ObjectNotFound):
            piece = store.read(upload_key(found.chunks[sha256].uid), 0, min(left, CHUNK_BYTES))
        if len(piece) != min(left, found.chunks[sha256].size_bytes):
            raise ChunkLost(sha256)
        left -= len(piece)
        yield piece
