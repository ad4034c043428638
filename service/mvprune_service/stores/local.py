"""Artifacts in a folder: one file per object."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from mvprune.sources.references import STORE_SIGN
from mvprune_service.clock import system_clock
from mvprune_service.stores import tree
from mvprune_service.stores.base import (
    FRESH_US,
    Entry,
    ObjectNotFound,
    SignedPut,
    StoreDamaged,
    StoreDenied,
    StoreFull,
    StoreUnavailable,
    check_key,
    check_prefix,
    check_range,
    checked,
    is_key,
)

_STAGING = STORE_SIGN  # not a key: no segment of a key starts with a dot
_FULL = (errno.ENOSPC, errno.EDQUOT)
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalStore:
    """A BlobStore in a folder, created if missing (see open_store).

    An object is written beside the others' folder, synced, and moved into place, so a reader and a crash see it whole
    or not at all. The staging folder doubles as the sign that the root is really there: an unmounted root is
    StoreUnavailable, not empty. What is no regular file, such as a symbolic link, is no object, and is replaced by the
    next one of its key.
    """

    def __init__(self, root: Path, *, create: bool = True) -> None:
        if not root.is_absolute():
            raise ValueError(f"store folder must be an absolute path, got {str(root)!r}")
        self._root = root
        staging = root / _STAGING
        with self._errors():
            if create:
                staging.mkdir(parents=True, exist_ok=True)
            if staging.is_symlink() or not staging.is_dir():
                raise StoreUnavailable(
                    f"{self.url} is no store: is its disk mounted? (`mkdir -p {staging}` makes a new, empty one)"
                )

    @property
    def url(self) -> str:
        """file:///folder."""
        return self._root.as_uri()

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        """See BlobStore.put."""
        path = check_key(key).split("/")
        with self._errors(), self._draft() as draft:
            draft.write(data)
            return self._install(draft, path, if_absent=if_absent)

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        """See BlobStore.put_file. An object that is there is read, to know its content."""
        target = check_key(key).split("/")
        if self._holds(key, path.stat().st_size, sha256):
            return
        with self._errors(), self._draft() as draft:
            for chunk in checked(path, sha256):
                draft.write(chunk)
            self._install(draft, target, if_absent=False)

    def get(self, key: str) -> bytes:
        """See BlobStore.get."""
        with self._errors(key), self._open(key) as file:
            return file.read()

    def read(self, key: str, offset: int, limit: int) -> bytes:
        """See BlobStore.read."""
        check_range(offset, limit)
        with self._errors(key), self._open(key) as file:
            file.seek(min(offset, file.seek(0, os.SEEK_END)))  # no file system knows every offset
            return file.read(limit)

    def size(self, key: str) -> int | None:
        """See BlobStore.size."""
        with contextlib.suppress(ObjectNotFound), self._errors(key), self._open(key) as file:
            return os.fstat(file.fileno()).st_size
        return None

    def delete(self, key: str) -> None:
        """See BlobStore.delete."""
        *parents, name = check_key(key).split("/")
        with contextlib.suppress(ObjectNotFound), self._errors(key), tree.folders(self._root, parents) as held:
            os.unlink(name, dir_fd=held[-1])

    def list(self, prefix: str) -> Iterator[Entry]:
        """See BlobStore.list."""
        folder, _, beginning = check_prefix(prefix).rpartition("/")
        parents = folder.split("/") if folder else []
        with contextlib.suppress(ObjectNotFound), self._errors(prefix), tree.folders(self._root, parents) as held:
            self._check_there()
            found = [("/".join([*parents, path]), status) for path, status in tree.walk(held[-1], beginning)]
            return (Entry(key, status.st_size, status.st_mtime_ns // 1000) for key, status in found if is_key(key))
        return iter(())

    def remove_torn(self, before_us: int) -> None:
        """See BlobStore.remove_torn: files that were never moved into place."""
        with self._errors(), tree.folders(self._root, [_STAGING]) as (_, staging), os.scandir(staging) as drafts:
            for draft in drafts:
                with contextlib.suppress(FileNotFoundError):  # moved meanwhile
                    if draft.stat(follow_symlinks=False).st_mtime_ns < before_us * 1000:
                        os.unlink(draft.name, dir_fd=staging)

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        """None: a folder has no URLs."""
        return None

    def presign_put(self, key: str, size: int, sha256: str, ttl_seconds: int) -> SignedPut | None:
        """None: a folder has no URLs."""
        return None

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[BufferedReader]:
        with (
            tree.regular_file(self._root, check_key(key).split("/")) as descriptor,
            open(descriptor, "rb", closefd=False) as file,
        ):
            yield file

    def _holds(self, key: str, size: int, sha256: str) -> bool:
        """Whether an object is there, young, whole, and on disk for good. What cannot be read is not there."""
        with contextlib.suppress(ObjectNotFound, StoreUnavailable), self._errors(key), self._open(key) as file:
            status = os.fstat(file.fileno())
            young = status.st_mtime_ns // 1000 > system_clock() - FRESH_US
            if young and status.st_size == size and hashlib.file_digest(file, "sha256").hexdigest() == sha256:
                with tree.folders(self._root, key.split("/")[:-1]) as held:
                    tree.sync(held)  # another upload may have moved it there just now, or failed to make it stay
                return True
        return False

    @contextlib.contextmanager
    def _draft(self) -> Iterator[tree.Draft]:
        with tree.folders(self._root, [_STAGING]) as (_, staging), tree.Draft(staging) as draft:
            yield draft

    def _install(self, draft: tree.Draft, path: Sequence[str], *, if_absent: bool) -> bool:
        try:
            with tree.folders(self._root, path[:-1], make=True) as held:
                return draft.install(held, path[-1], if_absent=if_absent)
        except (NotADirectoryError, IsADirectoryError) as error:
            if not self._is_there():
                raise
            found = f"{error.strerror}: {error.filename2 or error.filename}"
            raise StoreDamaged(
                f"{self.url} must have an object at {'/'.join(path)}, got something else there or above ({found}); "
                "move it away"
            ) from error

    def _check_there(self) -> None:
        with tree.folders(self._root, [_STAGING]):
            pass

    @contextlib.contextmanager
    def _errors(self, key: str | None = None) -> Iterator[None]:
        """Tells the absence of `key` (where one is read) from the absence of the store."""
        try:
            yield
        except _ABSENT as error:
            if key is not None and self._is_there():
                raise ObjectNotFound(f"{key} is not in {self.url}") from None
            raise StoreUnavailable(f"{self.url}: {error.strerror}: {error.filename}") from error
        except PermissionError as error:
            raise StoreDenied(f"{self.url}: {error.strerror}: {error.filename}") from error
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(
                    f"{self.url} has no room left ({error.strerror}): free some, or raise its quota"
                ) from error
            raise StoreUnavailable(f"{self.url}: {error.strerror}") from error

    def _is_there(self) -> bool:
        try:
            self._check_there()
        except OSError:
            return False
        return True
