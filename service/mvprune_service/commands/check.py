"""Checks a database and its store for damage, for `mvpctl server check`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from mvprune_service.command_line import CommandFailed, command_settings
from mvprune_service.config import Settings
from mvprune_service.control.ownership import Standing, compare, is_used_store, read_marks
from mvprune_service.db.engine import opening
from mvprune_service.db.engine.installation import installation
from mvprune_service.db.overview import has_stored
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import CHECKPOINTS, LOG_CHUNKS
from mvprune_service.db.tables.schema import METADATA
from mvprune_service.db.tables.uploads import UPLOAD_CHUNKS
from mvprune_service.observability.logs import redact
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.checkpoints import checkpoint_prefix
from mvprune_service.stores.layout import (
    MANIFEST_FILE,
    ArtifactCorrupt,
    StoredFile,
    blob_key,
    get_manifest,
    listed_files,
    manifest_key,
    parse,
    upload_key,
    verify,
)
from mvprune_service.stores.log_chunks import log_chunk_key

_ROWS = 500  # fetched at a time


@dataclass(frozen=True)
class Report:
    """The checks and their findings.

    Attributes:
        database: sqlite or postgresql.
        rows: rows of the database that were read.
        artifacts: number of artifacts that were checked in the store; `checkpoints` is that of checkpoints.
        chunks: number of chunks of uploads that were checked there; `log_chunks` is that of chunks of logs.
        problems: one line for each problem.
    """

    database: str
    rows: int
    artifacts: int
    checkpoints: int
    chunks: int
    log_chunks: int
    problems: list[str]


def check(*, files: bool, **given: str) -> Report:
    """Reads the database of these settings (default: those of the server), and checks that the store has every object
    that it refers to. Servers may be running. Raises CommandFailed.

    Args:
        files: read and hash every file of every artifact, and every chunk. Otherwise only sizes are compared.
    """
    try:
        return _check(command_settings(**given), files)
    except (opening.CannotOpen, StoreUnavailable, ValueError, OSError) as error:
        raise CommandFailed(str(error)) from None


def _check(settings: Settings, files: bool) -> Report:
    lost = opening.lost_commits(settings.database)
    problems = opening.damage(settings.database)
    if problems:  # rows of a damaged file prove nothing
        return Report("sqlite", 0, 0, 0, 0, 0, problems)
    with opening.looked_at(settings.database) as conn:
        if conn is None:
            raise CommandFailed("the database is empty")
        rows = 0
        for table in METADATA.sorted_tables:
            try:
                rows += sum(1 for _ in conn.execution_options(yield_per=_ROWS).execute(select(table)))
            except (SQLAlchemyError, ValueError) as error:
                problems.append(f"a row of the table {table.name} cannot be read: {redact(str(error))[:200]}")
        if lost is not None:
            problems.append(lost)
        if problems:
            return Report(conn.dialect.name, rows, 0, 0, 0, 0, problems)
        store = open_store(settings.store_url, create=False)
        problems += _ownership(conn, store)
        artifacts = conn.execute(select(ARTIFACTS.c.project, ARTIFACTS.c.sha256, ARTIFACTS.c.manifest)).all()
        for row in artifacts:
            problems += [
                f"artifact {row.sha256} of projects/{row.project}: {what}"
                for what in _artifact(store, row.sha256, row.manifest, files)
            ]
        checkpoints = conn.execute(select(CHECKPOINTS)).all()
        for row in checkpoints:
            prefix = checkpoint_prefix(row.attempt_uid, row.step)
            problems += [f"checkpoint {prefix}: {what}" for what in _checkpoint(store, prefix, row.manifest_sha256)]
        chunks = conn.execute(select(UPLOAD_CHUNKS).where(UPLOAD_CHUNKS.c.is_ready)).all()
        for row in chunks:
            problems += [
                f"chunk {row.sha256} of uploads of projects/{row.project}: {what}"
                for what in _object(store, upload_key(row.uid), row.size_bytes, row.sha256, files)
            ]
        log_chunks = conn.execute(select(LOG_CHUNKS)).all()
        for row in log_chunks:
            key = log_chunk_key(row.attempt_uid, row.uid)
            problems += [f"log {key}: {what}" for what in _object(store, key, row.stored_bytes, row.sha256, files)]
        counts = (len(artifacts), len(checkpoints), len(chunks), len(log_chunks))
        return Report(conn.dialect.name, rows, *counts, problems)


def _ownership(conn: Connection, store: BlobStore) -> list[str]:
    look = compare(installation(conn), read_marks(store), is_used=is_used_store(store) or has_stored(conn))
    return [] if look.standing in (Standing.OURS, Standing.NEW) else [f"the store {store.url}: {look.why}"]


def _artifact(store: BlobStore, sha256: str, recorded: object, files: bool) -> Iterator[str]:
    try:
        manifest = verify(store, sha256) if files else parse(get_manifest(store, manifest_key(sha256), sha256))
        if manifest != recorded:
            yield "the database has another manifest than the store"
        if not files:
            yield from _sizes(store, manifest, lambda file: blob_key(file.sha256))
    except ArtifactCorrupt as error:
        yield str(error)


def _checkpoint(store: BlobStore, prefix: str, sha256: str) -> Iterator[str]:
    try:
        manifest = parse(get_manifest(store, prefix + MANIFEST_FILE, sha256))
        yield from _sizes(store, manifest, lambda file: prefix + file.path)
    except ArtifactCorrupt as error:
        yield str(error)


def _object(store: BlobStore, key: str, size_bytes: int, sha256: str, files: bool) -> Iterator[str]:
    size = store.size(key)
    if size is None:
        yield "it is missing"
    elif size != size_bytes:
        yield f"it has {size} bytes, the database says {size_bytes}"
    elif files and hashlib.sha256(store.read(key, 0, max(size, 1))).hexdigest() != sha256:
        yield "it has other content than its SHA-256 says"


def _sizes(store: BlobStore, manifest: dict[str, Any], key: Callable[[StoredFile], str]) -> Iterator[str]:
    for file in listed_files(manifest):
        size = store.size(key(file))
        if size is None:
            yield f"{file.path} is missing"
        elif size != file.size_bytes:
            yield f"{file.path} has {size} bytes, the manifest says {file.size_bytes}"
