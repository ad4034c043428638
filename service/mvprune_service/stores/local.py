"""Artifacts in a folder: one file per object."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from mvprune_service.clock import system_clock
from mvprune_service.stores.base import (
    FRESH_US,
    Entry,
    ObjectNotFound,
    StoreDenied,
    StoreUnavailable,
    check_key,
    check_prefix,
    check_range,
)

_STAGING = ".staging"  # not a key: no segment of a key starts with a dot


class LocalStore:
    """A BlobStore in a folder, created if missing (see open_store).

    An object is written beside the others' folder, synced, and moved into place, so a reader and a crash see it whole
    or not at all. The staging folder doubles as the sign that the root is really there: an unmounted root is
    StoreUnavailable, not empty.
    """

    def __init__(self, root: Path, *, create: bool = True) -> None:
        if not root.is_absolute():
            raise ValueError(f"store folder {str(root)!r}: an absolute path is needed")
        self._root = root
        self._staging = root / _STAGING
        with self._errors():
            if create:
                self._staging.mkdir(parents=True, exist_ok=True)
            elif not self._staging.is_dir():
                raise StoreUnavailable(
                    f"{self.url} is no store: is its disk mounted? (`mkdir -p {self._staging}` makes a new, empty one)"
                )

    @property
    def url(self) -> str:
        """file:///folder."""
        return self._root.as_uri()

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See BlobStore.put."""
        target = self._path(key)
        with self._errors(), self._staged() as staged:
            staged.write_bytes(data)
            return self._install(staged, target, if_absent)

    def put_file(self, key: str, path: Path) -> None:
        """See BlobStore.put_file."""
        target = self._path(key)
        there = self._entry(key)
        if there and there.size == path.stat().st_size and there.modified_us > system_clock() - FRESH_US:
            return
        with self._errors(), self._staged() as staged:
            shutil.copyfile(path, staged)
            self._install(staged, target, if_absent=False)

    def get(self, key: str) -> bytes:
        """See BlobStore.get."""
        with self._errors(key):
            return self._path(key).read_bytes()

    def read(self, key: str, offset: int, limit: int) -> bytes:
        """See BlobStore.read."""
        check_range(offset, limit)
        with self._errors(key), self._path(key).open("rb") as file:
            file.seek(min(offset, file.seek(0, os.SEEK_END)))  # no file system knows every offset
            return file.read(limit)

    def size(self, key: str) -> int | None:
        """See BlobStore.size."""
        there = self._entry(key)
        return there.size if there else None

    def delete(self, key: str) -> None:
        """See BlobStore.delete."""
        with contextlib.suppress(ObjectNotFound), self._errors(key):
            self._path(key).unlink()

    def list(self, prefix: str) -> Iterator[Entry]:
        """See BlobStore.list."""
        folder = self._root / check_prefix(prefix).rpartition("/")[0]
        with self._errors():
            self._staging.stat()
            keys = [path.relative_to(self._root).as_posix() for path in folder.rglob("*") if path.is_file()]
        wanted = (key for key in keys if key.startswith(prefix) and not key.startswith(_STAGING))
        return (entry for entry in map(self._entry, wanted) if entry)  # None: deleted meanwhile

    def remove_torn(self, before_us: int) -> None:
        """See BlobStore.remove_torn: files that were never moved into place."""
        with self._errors():
            for staged in self._staging.iterdir():
                with contextlib.suppress(FileNotFoundError):  # moved meanwhile
                    if staged.stat().st_mtime_ns < before_us * 1000:
                        staged.unlink()

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        """None: a folder has no URLs."""
        return None

    def _entry(self, key: str) -> Entry | None:
        try:
            with self._errors(key):
                status = self._path(key).stat()
        except ObjectNotFound:
            return None
        return Entry(key, status.st_size, status.st_mtime_ns // 1000) if stat.S_ISREG(status.st_mode) else None

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    @contextlib.contextmanager
    def _staged(self) -> Iterator[Path]:
        staged = self._staging / uuid.uuid4().hex
        try:
            yield staged
        finally:
            staged.unlink(missing_ok=True)

    def _install(self, staged: Path, target: Path, if_absent: bool) -> bool:
        _sync(staged)
        target.parent.mkdir(parents=True, exist_ok=True)
        if if_absent:
            try:
                os.link(staged, target)
            except FileExistsError:
                return False
        else:
            staged.replace(target)
        folder = target.parent
        while folder != self._root.parent:  # new folders are entries to be synced too
            _sync(folder)
            folder = folder.parent
        return True

    @contextlib.contextmanager
    def _errors(self, key: str | None = None) -> Iterator[None]:
        """Tells the absence of `key` (where one is read) from the absence of the store."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            if key is not None and self._staging.is_dir():
                raise ObjectNotFound(f"{key} is not in {self.url}") from None
            raise StoreUnavailable(f"{self.url}: {error.strerror}: {error.filename}") from error
        except PermissionError as error:
            raise StoreDenied(f"{self.url}: {error.strerror}: {error.filename}") from error
        except OSError as error:
            raise StoreUnavailable(f"{self.url}: {error.strerror}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
