"""The folder or bucket with backups.

    objects/ab/abcdef…                 objects of the store, by their SHA-256, shared by all backups
    backups/20261125T160731Z/key       the server's key
                             database  the snapshot: see db/engine/snapshot.py
                             manifest.json  written last: without it the backup is incomplete

It is a store itself (see stores/base.py), so every file appears whole or not at all.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mvprune.common.exceptions import MvpruneError
from mvprune_service.backup.references import is_content
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, ObjectNotFound, Readable, is_key
from mvprune_service.stores.layout import ArtifactCorrupt, StoredFile, check_file, download

FORMAT = 1
_NAME = re.compile(r"\d{8}T\d{6}Z")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BACKUPS = "backups/"
_OBJECTS = "objects/"
_MANIFEST = "manifest.json"
DATABASE, KEY = "database", "key"
_AT_A_TIME = 4

Progress = Callable[[str, int, int], None]  # what is being done, how much is done, of how much


class BadBackup(MvpruneError):
    """A backup that cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Stored:
    """A file of a backup: an object of the store by its key, or `database` or `key`."""

    key: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class Contents:
    """A backup, as its manifest.json describes it.

    Attributes:
        name: its folder, the moment of its beginning.
        version: the version of mvprune that made it.
        database: sqlite or postgresql; `revision` is that of the schema.
        rows: rows of the database.
        artifacts: published artifacts.
        jobs: all jobs; `succeeded` of them have SUCCEEDED.
        key, snapshot: the server's key and the database.
        objects: objects of the store.
        problems: what the store had lost, a line each.
    """

    name: str
    version: str
    database: str
    revision: str
    rows: int
    jobs: int
    succeeded: int
    artifacts: int
    checkpoints: int
    key: Stored
    snapshot: Stored
    objects: tuple[Stored, ...]
    problems: tuple[str, ...]

    @property
    def files(self) -> dict[str, Stored]:
        """The files of the backup, each once, by the key in its folder or bucket."""
        found = {_place(self.name, file.key): file for file in (self.key, self.snapshot)}
        return found | {object_key(file.sha256): file for file in self.objects}


@dataclass(frozen=True)
class Summary:
    """A backup, as commands show it.

    Attributes:
        backup: its name, the moment of its beginning; `place` is the folder or bucket with all backups.
        database: sqlite or postgresql.
        rows: rows of the database.
        jobs: all jobs; `succeeded` of them have SUCCEEDED.
        objects: objects of the store in the backup, with `bytes` in all.
    """

    backup: str
    place: str
    database: str
    rows: int
    jobs: int
    succeeded: int
    artifacts: int
    checkpoints: int
    objects: int
    bytes: int


def summary(contents: Contents, place: str) -> dict[str, Any]:
    """The fields of Summary."""
    same = ("database", "rows", "jobs", "succeeded", "artifacts", "checkpoints")
    return {
        "backup": contents.name,
        "place": place,
        **{name: getattr(contents, name) for name in same},
        "objects": len(contents.objects),
        "bytes": sum(file.size_bytes for file in contents.objects),
    }


def object_key(sha256: str) -> str:
    """Where the object of a store with this content is."""
    return f"{_OBJECTS}{sha256[:2]}/{sha256}"


def _place(name: str, file: str) -> str:
    return f"{_BACKUPS}{name}/{file}"


def url_of(place: str) -> str:
    """The URL of a folder or URL that the command line names."""
    return place if "://" in place else Path(place).expanduser().absolute().as_uri()


class Archive:
    """The backups in one place. Its methods raise StoreUnavailable."""

    def __init__(self, place: str, *, create: bool) -> None:
        self.store = open_store(url_of(place), create=create)

    @property
    def url(self) -> str:
        """Of the folder or bucket."""
        return self.store.url

    def names(self) -> dict[str, bool]:
        """The backups, the oldest first, and whether each is complete."""
        keys = [entry.key.split("/")[1:] for entry in self.store.list(_BACKUPS)]
        found = sorted({name for name, *_ in keys if _NAME.fullmatch(name)})
        return {name: [name, _MANIFEST] in keys for name in found}

    def begin(self, key: bytes) -> str:
        """Begins a backup with the server's key; returns its name."""
        while True:
            name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            if self.store.put(_place(name, KEY), key, if_absent=True):
                return name
            time.sleep(1)  # another began in the same second

    def put_database(self, name: str, file: Path, sha256: str) -> None:
        """Adds the snapshot."""
        self.store.put_file(_place(name, DATABASE), file, sha256)

    def present(self) -> dict[str, int]:
        """The objects that are there: size by SHA-256."""
        return {entry.key.rpartition("/")[2]: entry.size for entry in self.store.list(_OBJECTS)}

    def finish(self, contents: Contents) -> None:
        """Completes a backup."""
        data = json.dumps({"format": FORMAT, **asdict(contents)}, indent=1).encode()
        self.store.put(_place(contents.name, _MANIFEST), data)

    def read(self, name: str = "") -> Contents:
        """A backup; by default the newest that is complete. Raises BadBackup."""
        names = self.names()
        complete = [each for each, is_complete in names.items() if is_complete]
        if not name and not complete:
            left = f"; incomplete: {', '.join(names)}" if names else ""
            raise BadBackup(f"{self.url} has no complete backup{left}")
        name = name or complete[-1]
        if name not in names:
            raise BadBackup(f"--backup must be one of {', '.join(complete) or 'none'}, got {name!r}")
        if not names[name]:
            raise BadBackup(f"the backup {name} is incomplete, as it has no {_MANIFEST}: its making was interrupted")
        try:
            return _parsed(json.loads(self.store.get(_place(name, _MANIFEST))), name)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadBackup(f"the {_MANIFEST} of the backup {name} cannot be read: {error!r:.200}") from None

    def fetch(self, contents: Contents, file: Stored, target: Path) -> None:
        """Downloads the key or the snapshot. Raises BadBackup unless its content is right."""
        try:
            read(self.store, _place(contents.name, file.key), file, target)
        except ArtifactCorrupt as error:
            raise BadBackup(f"the backup {contents.name} is damaged: {file.key}: {error}") from None

    def view(self, contents: Contents) -> Readable:
        """The objects of a backup by their keys in the store."""
        return _View(self.store, {file.key: object_key(file.sha256) for file in contents.objects})

    def damage(self, contents: Contents, progress: Progress) -> list[str]:
        """Reads and hashes every file of a backup; returns a line for each that is missing or damaged."""
        found: list[str] = []
        files = contents.files
        total, done = sum(file.size_bytes for file in files.values()), 0
        for key, file in files.items():
            try:
                check_file(self.store, key, StoredFile(file.key, file.size_bytes, file.sha256))
            except ArtifactCorrupt as error:
                found.append(f"{key}: {error}")
            done += file.size_bytes
            progress("verifying the backup", done, total)
        return found

    def keep_newest(self, count: int) -> tuple[int, int]:
        """Deletes all but the newest `count` complete backups, and the objects that only the deleted ones had. Returns
        how many backups and how many objects it deleted. It deletes no objects while there is a newer incomplete
        backup, which may still be in the making."""
        names = self.names()
        kept = [name for name, is_complete in names.items() if is_complete][-count:]
        old = [name for name in names if kept and name < kept[0]]
        for name in old:
            self.store.delete(_place(name, _MANIFEST))  # first: without it the backup is incomplete
            for entry in list(self.store.list(f"{_BACKUPS}{name}/")):
                self.store.delete(entry.key)
        if not kept or len(kept) < len(names) - len(old):
            return len(old), 0
        needed = {key for name in kept for key in self.read(name).files}
        garbage = [entry.key for entry in self.store.list(_OBJECTS) if entry.key not in needed]
        for key in garbage:
            self.store.delete(key)
        return len(old), len(garbage)


class _View:
    def __init__(self, store: BlobStore, places: dict[str, str]) -> None:
        self._store = store
        self._places = places

    def get(self, key: str) -> bytes:
        """See Readable.get."""
        if key not in self._places:
            raise ObjectNotFound(f"{key} is not in the backup")
        return self._store.get(self._places[key])


def read(store: BlobStore, key: str, file: Stored, target: Path) -> None:
    """Downloads an object to a new file. Raises ArtifactCorrupt unless it is there with this content."""
    wanted = StoredFile(target.name, file.size_bytes, file.sha256)
    download(store, [wanted], lambda _: key, target.parent)


def transfer(source: BlobStore, source_key: str, target: BlobStore, target_key: str, file: Stored) -> None:
    """Copies an object, through a file. Raises ArtifactCorrupt unless it is there with this content."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "file"
        read(source, source_key, file, copy)
        target.put_file(target_key, copy, file.sha256)


def in_parallel(work: Callable[[Stored], None], files: Iterable[Stored], progress: Callable[[Stored], None]) -> None:
    """Calls `work` for several files at a time. The first exception ends it."""
    with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="copy") as pool:
        tasks = [(pool.submit(work, file), file) for file in files]
        try:
            for task, file in tasks:
                task.result()
                progress(file)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _parsed(found: Any, name: str) -> Contents:
    if found.pop("format") != FORMAT:
        raise ValueError("it has another format, of a newer version of mvprune")
    files = {field: _stored(found.pop(field)) for field in ("key", "snapshot")}
    objects = tuple(_stored(one) for one in found.pop("objects"))
    wrong = next((file.key for file in objects if not is_key(file.key) or not is_content(file.key)), None)
    if wrong is not None:
        raise ValueError(f"{wrong[:100]!r} is no key of an object")
    contents = Contents(**{**found, **files, "objects": objects, "problems": tuple(found["problems"])})
    if contents.name != name:
        raise ValueError(f"it is that of {contents.name!r}")
    return contents


def _stored(found: Any) -> Stored:
    file = Stored(**found)
    if not (isinstance(file.key, str) and type(file.size_bytes) is int and _SHA256.fullmatch(file.sha256)):
        raise ValueError(f"not a file: {found!r:.100}")
    return file
