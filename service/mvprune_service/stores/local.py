"""Artifacts in a folder: one file per object."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from mvprune_service.stores.base import (
    ObjectNotFound,
    StoreDenied,
    StoreUnavailable,
    check_key,
    check_prefix,
    check_range,
)

_STAGING = ".staging"  # not a key: no segment of a key starts with a dot


class LocalStore:
    """A BlobStore in a folder, created if missing.

    An object is written beside the others' folder, synced, and moved into place, so a reader and a crash see it whole
    or not at all. The staging folder doubles as the sign that the root is really there: an unmounted root is
    StoreUnavailable, not empty.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_absolute():
            raise ValueError(f"store folder {str(root)!r}: an absolute path is needed")
        self._root = root
        self._staging = root / _STAGING
        with self._errors():
            self._staging.mkdir(parents=True, exist_ok=True)

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
        if self.size(key) == path.stat().st_size:
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
            file.seek(offset)
            return file.read(limit)

    def size(self, key: str) -> int | None:
        """See BlobStore.size."""
        try:
            with self._errors(key):
                status = self._path(key).stat()
        except ObjectNotFound:
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def delete(self, key: str) -> None:
        """See BlobStore.delete."""
        with contextlib.suppress(ObjectNotFound), self._errors(key):
            self._path(key).unlink()

    def list(self, prefix: str) -> Iterator[str]:
        """See BlobStore.list."""
        folder = self._root / check_prefix(prefix).rpartition("/")[0]
        with self._errors():
            self._staging.stat()
            keys = [path.relative_to(self._root).as_posix() for path in folder.rglob("*") if path.is_file()]
        return (key for key in keys if key.startswith(prefix) and not key.startswith(_STAGING))

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        """None: a folder has no URLs."""
        return None

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
