"""References of a database to its store: artifacts, uploads, logs, and what unfinished jobs continue from.

KINDS lists the kinds of objects. Whoever stores a new kind adds a function there; backup, restore and the check of a
backup need nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, select

from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS, LOG_CHUNKS
from mvprune_service.db.tables.uploads import UPLOAD_CHUNKS
from mvprune_service.domain.machine import LIVE_ATTEMPTS
from mvprune_service.stores.base import Readable
from mvprune_service.stores.checkpoints import checkpoint_prefix
from mvprune_service.stores.layout import (
    MANIFEST_FILE,
    ArtifactCorrupt,
    blob_key,
    get_manifest,
    listed_files,
    manifest_key,
    marker_key,
    parse,
    upload_key,
)
from mvprune_service.stores.log_chunks import log_chunk_key

_OF_THE_SERVICE = "collection/"  # flags, holds and marks, which are about the store itself


@dataclass(frozen=True)
class Reference:
    """An object that must be in the store. `size_bytes` is None where only the store knows it."""

    key: str
    sha256: str
    size_bytes: int | None


@dataclass(frozen=True)
class Referenced:
    """The references of one row.

    Attributes:
        what: names the row.
        objects: what it refers to.
        problem: why the objects cannot be listed; "" if they can.
    """

    what: str
    objects: tuple[Reference, ...] = ()
    problem: str = ""


def referenced(conn: Connection, store: Readable) -> Iterator[Referenced]:
    """The references of the rows of a database. Manifests of checkpoints and of unpublished artifacts are read from the
    store. Raises StoreUnavailable."""
    for kind in KINDS:
        yield from kind(conn, store)


def is_content(key: str) -> bool:
    """Whether an object is about jobs and artifacts, and not about the store itself."""
    return not key.startswith(_OF_THE_SERVICE)


def markers(conn: Connection) -> set[str]:
    """The keys of the commit markers that the attempts of a database may have. No job needs the marker of an attempt
    that has ended, so that backups have none."""
    return {marker_key(uid) for uid in conn.execute(select(ATTEMPTS.c.uid)).scalars()}


def _artifacts(conn: Connection, store: Readable) -> Iterator[Referenced]:
    """Published artifacts. Their rows have the manifests."""
    for row in conn.execute(select(ARTIFACTS.c.project, ARTIFACTS.c.sha256, ARTIFACTS.c.manifest)):
        what = f"artifact {row.sha256} of projects/{row.project}"
        try:
            files = [
                Reference(blob_key(file.sha256), file.sha256, file.size_bytes) for file in listed_files(row.manifest)
            ]
        except ArtifactCorrupt as error:
            yield Referenced(what, problem=str(error))
            continue
        yield Referenced(what, (Reference(manifest_key(row.sha256), row.sha256, None), *files))


def _offered(conn: Connection, store: Readable) -> Iterator[Referenced]:
    """Artifacts of jobs in FINALIZING: uploaded, and not published yet."""
    found = select(ATTEMPTS.c.uid, ATTEMPTS.c.manifest_sha256).where(
        ATTEMPTS.c.manifest_sha256.is_not(None), ATTEMPTS.c.state.in_(LIVE_ATTEMPTS)
    )
    for row in conn.execute(found):
        key = manifest_key(row.manifest_sha256)
        yield _listed(store, f"the result of attempt {row.uid}", key, row.manifest_sha256, "")


def _checkpoints(conn: Connection, store: Readable) -> Iterator[Referenced]:
    """Checkpoints, from which unfinished jobs resume."""
    for row in conn.execute(select(CHECKPOINTS)):
        prefix = checkpoint_prefix(row.attempt_uid, row.step)
        yield _listed(store, f"checkpoint {prefix}", prefix + MANIFEST_FILE, row.manifest_sha256, prefix)


def _uploads(conn: Connection, store: Readable) -> Iterator[Referenced]:
    """The chunks that have arrived from clients."""
    for row in conn.execute(select(UPLOAD_CHUNKS).where(UPLOAD_CHUNKS.c.is_ready)):
        what = f"chunk {row.sha256} of an upload of projects/{row.project}"
        yield Referenced(what, (Reference(upload_key(row.uid), row.sha256, row.size_bytes),))


def _logs(conn: Connection, store: Readable) -> Iterator[Referenced]:
    """Chunks of the logs of attempts."""
    for row in conn.execute(select(LOG_CHUNKS)):
        key = log_chunk_key(row.attempt_uid, row.uid)
        yield Referenced(f"log {key}", (Reference(key, row.sha256, row.stored_bytes),))


KINDS: tuple[Callable[[Connection, Readable], Iterator[Referenced]], ...] = (
    _artifacts,
    _offered,
    _checkpoints,
    _uploads,
    _logs,
)


def _listed(store: Readable, what: str, key: str, sha256: str, prefix: str) -> Referenced:
    """A manifest in the store with its files, which are below `prefix`; "": they are blobs."""
    try:
        data = get_manifest(store, key, sha256)
        files = listed_files(parse(data))
    except ArtifactCorrupt as error:
        return Referenced(what, problem=str(error))
    objects = [
        Reference(prefix + file.path if prefix else blob_key(file.sha256), file.sha256, file.size_bytes)
        for file in files
    ]
    return Referenced(what, (*objects, Reference(key, sha256, len(data))))
