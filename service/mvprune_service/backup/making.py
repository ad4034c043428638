"""Makes backups, for `mvpctl server backup`. Servers may be running.

The order: a hold in the store, the snapshot of the database, the objects that the snapshot refers to, the manifest.
The store has all that a database refers to at the moment of the snapshot, since a row is written after its objects.
The hold keeps the objects there until they are copied: control/collector.py says why. Objects never change, so it does
not matter when they are copied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import func, select

import mvprune_migrations
from mvprune_service.backup import archive
from mvprune_service.backup.archive import Archive, Contents, Progress, Stored, Summary, summary
from mvprune_service.backup.references import Reference, referenced
from mvprune_service.command_line import CommandFailed, command_settings
from mvprune_service.config import Settings
from mvprune_service.db.engine import opening, snapshot
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import CHECKPOINTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.machine import JobState
from mvprune_service.secret import BadKey, load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.holds import hold
from mvprune_service.stores.layout import ArtifactCorrupt


@dataclass(frozen=True)
class Made(Summary):
    """A backup that was made.

    Attributes:
        copied_objects: the objects that this call copied, with `copied_bytes` in all; others were there.
        deleted_backups: older backups that were deleted, because of `keep`.
        problems: what the store has lost, a line each. The backup has everything else.
    """

    copied_objects: int
    copied_bytes: int
    deleted_backups: int
    problems: list[str]


def make(place: str, progress: Progress, keep: int = 0, **given: str) -> Made:
    """Makes a backup of the database, the store and the key of these settings (default: those of the server).

    Args:
        place: a folder, or a URL as of a store.
        keep: how many of the newest backups to keep there, with this one; 0: all.

    Raises:
        CommandFailed: the backup is incomplete. The next one continues with the objects that were copied.
    """
    try:
        with readable_by_owner():
            return _make(place, progress, keep, command_settings(**given))
    except (opening.CannotOpen, StoreUnavailable, BadKey, ValueError, OSError) as error:
        raise CommandFailed(str(error)) from None


@contextmanager
def readable_by_owner() -> Iterator[None]:
    """Files that this process creates meanwhile can be read by its user only."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _make(place: str, progress: Progress, keep: int, settings: Settings) -> Made:
    if not settings.key.exists():
        raise CommandFailed(f"the server's key must be in {settings.key}, got no file; name it with --key-file")
    key = load_key(settings.key)
    store = open_store(settings.store_url, create=False)
    check_apart(archive.url_of(place), store.url)
    if damage := opening.lost_commits(settings.database) or next(iter(opening.damage(settings.database)), None):
        raise CommandFailed(damage)
    target = Archive(place, create=True)
    with hold(store), TemporaryDirectory() as folder:
        file = Path(folder) / "database"
        with opening.looked_at(settings.database) as conn:
            if conn is None:
                raise CommandFailed("the database is empty")
            name = target.begin(key)
            database = conn.dialect.name
            rows = snapshot.dump(conn, file, lambda done, total: progress("reading the database", done, total))
        contents = _described(name, database, rows, file, key)
        target.put_database(name, file, contents.snapshot.sha256)
        contents, copied = _Copying(store, target, progress).run(file, contents)
        target.finish(contents)
    deleted, _ = target.keep_newest(keep) if keep else (0, 0)
    return Made(
        **summary(contents, target.url),
        copied_objects=len(copied),
        copied_bytes=sum(copied),
        deleted_backups=deleted,
        problems=list(contents.problems),
    )


def check_apart(place: str, store: str) -> None:
    """Raises CommandFailed for a backup inside of the store, or a store inside of the backup."""
    one, other = f"{place.rstrip('/')}/", f"{store.rstrip('/')}/"
    if one.startswith(other) or other.startswith(one):
        raise CommandFailed(f"the backup must be in another place than the store {store}, got {place}")


def _described(name: str, database: str, rows: int, file: Path, key: bytes) -> Contents:
    with file.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    with snapshot.opened_snapshot(file) as conn:
        succeeded = select(func.count()).select_from(JOBS).where(JOBS.c.state == JobState.SUCCEEDED)
        jobs, artifacts, checkpoints = (
            conn.execute(select(func.count()).select_from(table)).scalar_one()
            for table in (JOBS, ARTIFACTS, CHECKPOINTS)
        )
        return Contents(
            name=name,
            version=version("mvprune"),
            database=database,
            revision=mvprune_migrations.HEAD,
            rows=rows,
            jobs=jobs,
            succeeded=conn.execute(succeeded).scalar_one(),
            artifacts=artifacts,
            checkpoints=checkpoints,
            key=Stored(archive.KEY, hashlib.sha256(key).hexdigest(), len(key)),
            snapshot=Stored(archive.DATABASE, sha256, file.stat().st_size),
            objects=(),
            problems=(),
        )


class _Copying:
    """Copies what a snapshot refers to, from the store into the archive, except what the archive has."""

    def __init__(self, store: BlobStore, target: Archive, progress: Progress) -> None:
        self._store = store
        self._target = target
        self._progress = progress
        self._present = target.present()
        self._lost: dict[str, str] = {}  # key → why it is not in the backup

    def run(self, file: Path, contents: Contents) -> tuple[Contents, list[int]]:
        """The contents with the objects, and the sizes of those that were copied."""
        wanted: dict[str, Stored] = {}
        missing: dict[str, list[str]] = {}  # key → what needs it
        problems: list[str] = []
        with snapshot.opened_snapshot(file) as conn:
            for one in referenced(conn, self._store):
                if one.problem:
                    problems.append(f"{one.what}: {one.problem}")
                for reference in one.objects:
                    missing.setdefault(reference.key, []).append(one.what)
                    if reference.key not in wanted:
                        wanted[reference.key] = self._sized(reference)
        copied = self._copy(list(wanted.values()))
        for key, why in self._lost.items():
            problems += [f"{what}: {why}" for what in missing[key]]
        objects = tuple(one for one in wanted.values() if one.key not in self._lost)
        return replace(contents, objects=objects, problems=tuple(problems)), copied

    def _sized(self, reference: Reference) -> Stored:
        size = reference.size_bytes
        if size is None:
            size = self._present.get(reference.sha256)
        if size is None:
            size = self._store.size(reference.key) or 0  # missing: copying it says so
        return Stored(reference.key, reference.sha256, size)

    def _copy(self, wanted: list[Stored]) -> list[int]:
        places: dict[str, list[Stored]] = {}  # SHA-256 → where the store has it
        for file in wanted:
            if self._present.get(file.sha256) != file.size_bytes:
                places.setdefault(file.sha256, []).append(file)
        first = [files[0] for files in places.values()]
        total, done = sum(file.size_bytes for file in first), 0
        copied: list[int] = []

        def work(file: Stored) -> None:
            for one in places[file.sha256]:
                try:
                    archive.transfer(self._store, one.key, self._target.store, archive.object_key(one.sha256), one)
                except ArtifactCorrupt as error:
                    self._lost[one.key] = str(error)
                else:
                    for found in places[file.sha256]:
                        self._lost.pop(found.key, None)
                    return

        def count(file: Stored) -> None:
            nonlocal done
            done += file.size_bytes
            if file.key not in self._lost:
                copied.append(file.size_bytes)
            self._progress("copying the store", done, total)

        archive.in_parallel(work, first, count)
        return copied
