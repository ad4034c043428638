"""Checks, before an SQLite file is opened for writing, that it is undamaged and has every acknowledged commit.

A wrong byte in a WAL is no error to SQLite: it takes the byte for the end, and the commits after it are lost. So the
database counts its commits (`installation.generation`). A witness, a small file beside the database, has the count of
the last commit whose callers were answered. It is written after each commit and before the answers, and is not synced:
after a power failure it may be older than the database, which proves nothing, but never newer.

The file is opened read-only here, so SQLite changes neither the file nor its WAL.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import struct
import time
import zlib
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from mvprune_service.private_files import make_private

_WITNESS = struct.Struct("<16sQI")  # the database's uid, its generation, CRC-32 of both
_IS_EMPTY = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'alembic_version')"
_COUNT = "SELECT uid, generation FROM installation"
_RESTORE = 'docs/operate.md, "Restore a backup", has the steps'


class BadFile(Exception):
    """The database file cannot be used; the text says why and what to do."""


@dataclass(frozen=True)
class Count:
    """The number of commits of a database."""

    uid: str
    generation: int


class Witness:
    """The file beside a database with the count of its last acknowledged commit."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(f"{database.name}.commits")
        self._map: mmap.mmap | None = None

    def read(self) -> Count | None:
        """Its content. None if the file is missing or, after a power failure, unreadable."""
        try:
            data = self.path.read_bytes()
            uid, generation, checksum = _WITNESS.unpack(data)
        except (FileNotFoundError, struct.error):
            return None
        return Count(uid.hex(), generation) if checksum == zlib.crc32(data[:-4]) else None

    def write(self, count: Count) -> None:
        """Replaces its content. Raises OSError, at the first call, if the file cannot be created."""
        head = _WITNESS.pack(bytes.fromhex(count.uid), count.generation, 0)[:-4]
        data = head + zlib.crc32(head).to_bytes(4, "little")
        if self._map is None:
            self._map = self._opened(data)
        self._map[:] = data

    def _opened(self, data: bytes) -> mmap.mmap:
        """The file, mapped into memory. A system call would make the writing thread wait for other threads. What was
        written to the mapping is in the file when the process is killed."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(descriptor, data, 0)  # allocates the blocks
            os.ftruncate(descriptor, len(data))
            return mmap.mmap(descriptor, len(data))
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Closes the file."""
        if self._map is not None:
            self._map.close()
            self._map = None


def examine(file: Path) -> None:
    """Raises BadFile for a file with damaged pages, sqlite3.Error for one that is no database."""
    if not has_content(file):
        return
    with closing(_read_only(file)) as conn:
        findings = _findings(conn, "quick_check(1)")
    if findings:
        raise BadFile(f"the database {file} is damaged ({findings[0]}): restore a backup; {_RESTORE}{_backups(file)}")


def find_lost_commits(file: Path) -> None:
    """Raises BadFile for a file that lacks an acknowledged commit. A database of an earlier revision has no count: see
    `check_uid`."""
    acknowledged = Witness(file).read()
    if acknowledged is None:
        return
    if _is_empty(file):
        raise BadFile(_text(file, f"is missing or empty; it had {acknowledged.generation:,} commits"))
    found = _count(file)
    if found is None:
        return
    check_uid(file, found)
    if found.generation < acknowledged.generation:
        what = f"has lost commits that were acknowledged: {found.generation:,} of {acknowledged.generation:,} are there"
        raise BadFile(_text(file, what))


def check_uid(file: Path, found: Count) -> None:
    """Raises BadFile if this file replaces another database, or is an earlier backup that was migrated."""
    acknowledged = Witness(file).read()
    if acknowledged is not None and acknowledged.uid != found.uid:
        raise BadFile(_text(file, "is not the one that was here before, or is an earlier backup of it"))


def accept_loss(file: Path) -> Path | None:
    """Accepts the file as it is. Copies its WAL first, since opening the file empties it; returns the copy, None if
    there is no WAL. Raises OSError."""
    wal, kept = file.with_name(f"{file.name}-wal"), None
    if has_content(wal):
        kept = file.with_name(f"{wal.name}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
        make_private(kept)
        shutil.copyfile(wal, kept)
    Witness(file).path.unlink(missing_ok=True)
    return kept


def deep_findings(file: Path) -> list[str]:
    """Faults in the pages, indexes and references of a database. A server may be using it."""
    with closing(_read_only(file)) as conn:
        wrong = _findings(conn, "integrity_check")
        for table, row, parent, _ in conn.execute("PRAGMA foreign_key_check"):
            wrong.append(f"row {row} of {table} names a row of {parent} that is not there")
    return wrong


def _text(file: Path, what: str) -> str:
    return (
        f"the database {file} {what}. Nothing was changed. Restore a newer backup, or continue with the database as it "
        f"is: `mvpctl server adopt-store`; {_RESTORE}{_backups(file)}"
    )


def _findings(conn: sqlite3.Connection, check: str) -> list[str]:
    try:
        found = [str(text).replace("\n", " ") for (text,) in conn.execute(f"PRAGMA {check}")]
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError) or error.sqlite_errorcode != sqlite3.SQLITE_CORRUPT:
            raise
        return [str(error)]
    return [] if found == ["ok"] else found


def _is_empty(file: Path) -> bool:
    """Whether it has no schema: without the beginning of its WAL a file may be one page."""
    if not has_content(file):
        return True
    with closing(_read_only(file)) as conn:
        return bool(conn.execute(_IS_EMPTY).fetchone()[0])


def _count(file: Path) -> Count | None:
    with closing(_read_only(file)) as conn:
        try:
            row = conn.execute(_COUNT).fetchone()
        except sqlite3.OperationalError:  # an earlier revision
            return None
    return Count(*row) if row else None


def _read_only(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)


def has_content(file: Path) -> bool:
    """Whether there is a file that is not empty."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


def _backups(file: Path) -> str:
    """Copies that migrations made."""
    names = [path.name for path in sorted(file.parent.glob(f"{file.name}.[0-9][0-9][0-9][0-9]"))]
    return f" (made by `mvpctl server migrate`: {', '.join(names)})" if names else ""
