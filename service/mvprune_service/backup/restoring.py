"""Restores a backup, for `mvpctl server restore`, and checks one, for `mvpctl server backup --check`.

The order: every file of the backup is read and hashed, the place is checked, objects are copied into the store, then
the key, then all rows in one transaction. So a database never refers to objects that are not there, and a restore that
was interrupted can be repeated.

A store that was in use may have objects that are newer than the backup. To the restored database they would be
garbage. So the database does not become the owner of such a store: until `mvpctl server adopt-store`, its servers run
jobs and delete nothing from the store. See control/ownership.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.exc import SQLAlchemyError

import mvprune_migrations
from mvprune_service.backup import archive
from mvprune_service.backup.archive import Archive, BadBackup, Contents, Progress, Stored, Summary, summary
from mvprune_service.backup.making import check_apart
from mvprune_service.backup.references import is_content, markers, referenced
from mvprune_service.command_line import CommandFailed, command_settings
from mvprune_service.config import Settings
from mvprune_service.control.ownership import Look, Ownership, Standing, read_marks
from mvprune_service.control.ownership import compare as compare_marks
from mvprune_service.db.engine import integrity, opening, snapshot
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.lock import CannotLock, lock
from mvprune_service.observability.logs import redact
from mvprune_service.private_files import open_private
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, Entry, StoreUnavailable
from mvprune_service.stores.layout import MANIFESTS, ArtifactCorrupt, StoredFile, check_file


@dataclass(frozen=True)
class Checked(Summary):
    """A backup that was checked.

    Attributes:
        problems: a line for each file that is missing or damaged, and for what the store had lost when it was made.
        incomplete: other backups in the same place that were interrupted.
    """

    problems: list[str]
    incomplete: list[str]


@dataclass(frozen=True)
class Restored(Summary):
    """A backup that was restored. `database` is the kind of the database that was filled.

    Attributes:
        copied_objects: the objects that were copied; others were in the store.
        repaired_objects: those of the copied ones that the store had with other content.
        newer_objects: objects of the store that the restored database does not know, with `newer_bytes` in all.
        newer_artifacts: SHA-256 of the manifests among them.
        owns_store: whether the database may delete from the store; if not, `mvpctl server adopt-store` decides that.
        kept_wal: copy of the WAL of a database file that was missing; None without one.
        problems: what the store had lost when the backup was made, a line each.
    """

    store: str
    copied_objects: int
    repaired_objects: int
    newer_objects: int
    newer_bytes: int
    newer_artifacts: list[str]
    owns_store: bool
    kept_wal: Path | None
    problems: list[str]


def check(place: str, name: str, progress: Progress) -> Checked:
    """Reads and hashes every file of a backup, "": the newest that is complete. Raises CommandFailed, BadBackup."""
    with _explained(), TemporaryDirectory() as folder:
        source = Archive(place, create=False)
        contents = source.read(name)
        problems = source.damage(contents, progress)
        if not problems:
            file = Path(folder) / "database"
            source.fetch(contents, contents.snapshot, file)
            problems = _differences(source, contents, file)
        return Checked(
            **summary(contents, source.url),
            problems=[*problems, *contents.problems],
            incomplete=[each for each, is_complete in source.names().items() if not is_complete],
        )


def restore(place: str, name: str, progress: Progress, **given: str) -> Restored:
    """Restores a backup, "": the newest that is complete, into the database, the store and the key file of these
    settings (default: those of the server). Raises CommandFailed, BadBackup."""
    with _explained():
        settings = command_settings(**given)
        check_apart(archive.url_of(place), settings.store_url)
        source = Archive(place, create=False)
        contents = source.read(name)
        if damage := source.damage(contents, progress):
            more = f" (and {len(damage) - 1:,} more)" if len(damage) > 1 else ""
            raise BadBackup(f"the backup {contents.name} is damaged: {damage[0]}{more}; nothing was changed")
        with TemporaryDirectory() as folder, _home(settings.home):
            files = Path(folder) / "database", Path(folder) / "key"
            for file, target in zip((contents.snapshot, contents.key), files, strict=True):
                source.fetch(contents, file, target)
            snapshot.upgrade(files[0])
            return _Restore(settings, source, contents, progress).run(files[0], files[1].read_bytes())


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except DatabaseUnavailable as error:
        raise CommandFailed(f"the database became unavailable ({error})") from None
    except (SQLAlchemyError, sqlite3.Error) as error:
        reason = str(getattr(error, "orig", error)).strip().partition("\n")[0]
        raise CommandFailed(f"a row cannot be restored: {redact(reason)}; the database is as it was") from None
    except (
        opening.CannotOpen,
        mvprune_migrations.SchemaMismatch,
        StoreUnavailable,
        CannotLock,
        ValueError,
        OSError,
    ) as error:
        raise CommandFailed(str(error)) from None


@contextmanager
def _home(home: Path) -> Iterator[None]:
    """The server's home folder, which no server uses meanwhile."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with lock(home / "lock", f"a server uses {home}: stop it first"):
        yield


def _differences(source: Archive, contents: Contents, file: Path) -> list[str]:
    """Faults of a snapshot, and references of its rows that the backup does not have."""
    if damage := integrity.deep_findings(file):
        return [f"{archive.DATABASE}: {what}" for what in damage]
    snapshot.upgrade(file)
    if contents.problems:  # they name what is missing
        return []
    known = {one.key for one in contents.objects}
    found: list[str] = []
    with snapshot.opened_snapshot(file) as conn:
        for one in referenced(conn, source.view(contents)):
            missing = [
                f"{reference.key} is not in the backup" for reference in one.objects if reference.key not in known
            ]
            found += [f"{one.what}: {what}" for what in (*missing, one.problem) if what]
    return found


class _Restore:
    """One restore into a place that no server uses."""

    def __init__(self, settings: Settings, source: Archive, contents: Contents, progress: Progress) -> None:
        self._settings = settings
        self._source = source
        self._contents = contents
        self._progress = progress

    def run(self, file: Path, key: bytes) -> Restored:
        """Restores the snapshot in `file`."""
        settings, contents = self._settings, self._contents
        if settings.key.exists() and settings.key.read_bytes() != key:
            raise CommandFailed(f"the key file {settings.key} must not exist, or be that of the backup; move it away")
        store = open_store(settings.store_url)
        look = _look(store, file)  # before the database is opened: then nothing is changed
        kept: list[Path | None] = [None]
        with opening.opened(settings.database, lambda lost: kept.append(integrity.accept_loss(lost))) as db:
            opening.prepare_empty(db)
            there = {entry.key: entry for entry in store.list("") if is_content(entry.key)}
            newer = self._newer(there, file)
            copied, repaired = self._copy(store, there)
            if not settings.key.exists():
                with open_private(settings.key, "xb") as private:
                    private.write(key)
            rows = self._load(db, file, look)
            owns = not look.marks and not newer
            if owns:
                asyncio.run(Ownership(db, store).adopt(look))
            kind = db.engine.dialect.name
        return Restored(
            **{**summary(contents, self._source.url), "database": kind, "rows": rows},
            store=store.url,
            copied_objects=copied,
            repaired_objects=repaired,
            newer_objects=len(newer),
            newer_bytes=sum(entry.size for entry in newer),
            newer_artifacts=sorted(entry.key.rpartition("/")[2] for entry in newer if entry.key.startswith(MANIFESTS)),
            owns_store=owns,
            kept_wal=kept[-1],
            problems=list(contents.problems),
        )

    def _newer(self, there: dict[str, Entry], file: Path) -> list[Entry]:
        """The objects that the database of the backup does not know."""
        known = {one.key for one in self._contents.objects}
        with snapshot.opened_snapshot(file) as conn:
            known |= markers(conn)
        return [entry for key, entry in there.items() if key not in known]

    def _copy(self, store: BlobStore, there: dict[str, Entry]) -> tuple[int, int]:
        """Copies the objects that the store does not have. Those that it has are read and hashed. Returns how many were
        copied, and how many of them replaced other content."""
        objects = self._contents.objects
        total, done, copied = sum(file.size_bytes for file in objects), 0, set[str]()

        def work(file: Stored) -> None:
            if file.key in there and _is_whole(store, file):
                return
            source = self._source.store
            archive.transfer(source, archive.object_key(file.sha256), store, file.key, file)
            copied.add(file.key)

        def count(file: Stored) -> None:
            nonlocal done
            done += file.size_bytes
            self._progress("filling the store", done, total)

        archive.in_parallel(work, objects, count)
        return len(copied), len(copied & there.keys())

    def _load(self, db: Database, file: Path, look: Look) -> int:
        """Fills the database in one transaction. Its generation is greater than the marks' in the store, and it knows
        no mark: so its servers start, and delete nothing from a store that was in use."""
        generation = look.generation + 1 if look.marks else 0

        def on_rows(done: int, total: int) -> None:
            self._progress("filling the database", done, total)

        with db.engine.begin() as conn:
            if not snapshot.is_empty(conn):
                raise CommandFailed("the database must be empty, but somebody has just written to it")
            rows = snapshot.load(file, conn, generation, on_rows)
            if opening.is_served(db):
                raise CommandFailed("a server has started on the database: stop it first; the database is as it was")
        return rows


def _look(store: BlobStore, file: Path) -> Look:
    """The store's marks compared with the database of the backup. Raises CommandFailed for the store of another one,
    whose servers would delete what is restored."""
    look = compare_marks(snapshot.identity(file), read_marks(store), is_used=True)
    is_own = any(mark.database == look.installation.uid for mark in look.marks)
    if look.standing in (Standing.FOREIGN, Standing.UNKNOWN) and not is_own:
        why = look.why.replace("this is", "the backup is of")
        raise CommandFailed(f"the store must be empty, or that of the backup, got {store.url}: {why}; --store URL")
    return look


def _is_whole(store: BlobStore, file: Stored) -> bool:
    try:
        check_file(store, file.key, StoredFile(file.key, file.size_bytes, file.sha256))
    except ArtifactCorrupt:
        return False
    return True
