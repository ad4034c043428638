"""Uploads of a project: announced, sent chunk by chunk, complete, deleted.

Chunks belong to one project. Two projects that send the same content have two rows and two objects, so that knowing a
digest never gives access to what another project has sent.

Transactions that change which chunks there are wait for each other within a project: `_lock`. They keep the project's
totals, so that none of them sums over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, exists, func, insert, select, update

from mvprune.sources.uploads import File, Kind
from mvprune_service.clock import SECOND
from mvprune_service.db import quotas
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_all, fetch_one
from mvprune_service.db.list_page import ListPage
from mvprune_service.db.tables.uploads import (
    UPLOAD_CHUNKS,
    UPLOAD_PARTS,
    UPLOAD_TOTALS,
    UPLOADS,
    ChunkRow,
    ListedUploadRow,
    UploadRow,
    UploadTotalRow,
)
from mvprune_service.db.upload_uses import USES, names_of_users
from mvprune_service.ids import UploadName, new_uid

_LOCK = 0x6D767075  # of a project's chunks, in PostgreSQL: a number that nothing else uses
_VALUES = 500  # in a statement
_NOTE_EVERY_US = 60 * SECOND  # while chunks arrive, the upload's last use is written this often


@dataclass(frozen=True)
class Limits:
    """Limits of a project's uploads in all.

    Attributes:
        stored_bytes: of all chunks, equal ones counted once; of a project that has no quota of its own.
        parts: files and chunks of all uploads.
    """

    stored_bytes: int
    parts: int


class TooMuch(Exception):
    """The project's uploads would have more than they may.

    Attributes:
        what: `stored_bytes` or `parts`: what there is too much of.
    """

    def __init__(self, project: str, what: str, total: int, limit: int) -> None:
        super().__init__(f"{total} {what} of uploads of projects/{project}, at most {limit}")
        self.project = project
        self.what = what
        self.total = total
        self.limit = limit


class Contradiction(Exception):
    """The upload contradicts another of the project; the text says how."""


class InUse(Exception):
    """Jobs or sweeps use the upload.

    Attributes:
        names: of some of them.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


class NewUpload:
    """The content of a new upload. All that needs no database is computed here, before a transaction begins.

    Args:
        name: with the digest of `files`.

    Attributes:
        sizes: bytes of each chunk.
        parts: how many files and different chunks it has.

    Raises:
        Contradiction: a chunk has two sizes.
    """

    def __init__(self, name: UploadName, kind: Kind, display_name: str, files: Sequence[File], creator: str) -> None:
        self.name = name
        self.kind = kind
        self.files = files
        self.sizes: dict[str, int] = {}
        for file in files:
            for sha256, size in zip(file.chunks, file.sizes(), strict=True):
                if self.sizes.setdefault(sha256, size) != size:
                    sizes = f"got {self.sizes[sha256]:,} and {size:,}"
                    raise Contradiction(f"the chunk {sha256} must have one size, {sizes}")
        self.parts = len(files) + len(self.sizes)
        self.total_bytes = sum(file.size_bytes for file in files)
        project, digest = name
        self._row = {
            "project": project,
            "digest": digest,
            "kind": kind,
            "display_name": display_name,
            "files": [
                {"path": file.path, "size_bytes": file.size_bytes, "chunks": list(file.chunks)} for file in files
            ],
            "total_bytes": self.total_bytes,
            "creator": creator,
            "parts": self.parts,
        }
        self._parts = [{"project": project, "digest": digest, "sha256": sha256} for sha256 in self.sizes]
        self.display_name = display_name
        self.creator = creator

    def insert(self, tx: Tx, added: Mapping[str, int]) -> None:
        """Adds its rows, and those of the chunks that the project does not have."""
        project = self.name.project
        tx.conn.execute(insert(UPLOADS).values({**self._row, "create_us": tx.now, "used_us": tx.now}))
        chunks = [
            {
                "project": project,
                "sha256": sha256,
                "uid": new_uid(tx.now),
                "size_bytes": size,
                "is_ready": False,
                "create_us": tx.now,
            }
            for sha256, size in added.items()
        ]
        if chunks:
            tx.conn.execute(insert(UPLOAD_CHUNKS), chunks)
        if self._parts:
            tx.conn.execute(insert(UPLOAD_PARTS), self._parts)
        _add(tx.conn, project, stored_bytes=sum(added.values()), parts=self.parts)


def create(tx: Tx, new: NewUpload, limits: Limits) -> UploadRow:
    """Announces an upload, or the same again: then only the time of its last use changes. Raises TooMuch,
    Contradiction."""
    _lock(tx.conn, new.name.project)
    row = upload_named(tx.conn, new.name)
    known = _check(tx.conn, new, row, limits)
    if row is None:
        new.insert(tx, {sha256: size for sha256, size in new.sizes.items() if sha256 not in known})
        _note_ready(tx, new.name.project, UPLOADS.c.digest == new.name.digest)
    else:
        tx.conn.execute(update(UPLOADS).where(_is(new.name)).values(used_us=tx.now))
    return _existing(upload_named(tx.conn, new.name))


def check(conn: Connection, new: NewUpload, limits: Limits) -> list[str]:
    """The chunks that would have to be sent. Raises TooMuch, Contradiction."""
    row = upload_named(conn, new.name)
    known = _check(conn, new, row, limits)
    if row is not None:
        return missing(conn, row)
    return [sha256 for sha256 in new.sizes if not (sha256 in known and known[sha256].is_ready)]


def upload_named(conn: Connection, name: UploadName) -> UploadRow | None:
    """One upload."""
    return fetch_one(conn, UploadRow, select(UPLOADS).where(_is(name)))


def missing(conn: Connection, row: UploadRow) -> list[str]:
    """The chunks of an upload that are not there yet, in the order of its files."""
    if row.ready_us is not None:
        return []
    absent = set(conn.execute(_chunks(row.name, UPLOAD_CHUNKS.c.sha256).where(~UPLOAD_CHUNKS.c.is_ready)).scalars())
    return [sha256 for sha256 in dict.fromkeys(one for file in row.files for one in file["chunks"]) if sha256 in absent]


def page_of_uploads(conn: Connection, project: str, page: ListPage) -> list[ListedUploadRow]:
    """Uploads of a project."""
    jobs = [
        select(func.count())
        .select_from(table)
        .where(table.c.project == UPLOADS.c.project, table.c.digest == UPLOADS.c.digest)
        .scalar_subquery()
        for table in USES
    ]
    columns = [column for column in UPLOADS.c if column.key != "files"]
    found = select(*columns, (jobs[0] + jobs[1]).label("jobs")).where(UPLOADS.c.project == project)
    return fetch_all(conn, ListedUploadRow, page.of(found))


def chunks_of(conn: Connection, name: UploadName, wanted: Iterable[str] | None = None) -> dict[str, ChunkRow]:
    """Chunks of an upload by their SHA-256: those that are wanted, or all."""
    every = _chunks(name, *UPLOAD_CHUNKS.c)
    if wanted is not None:
        every = every.where(UPLOAD_CHUNKS.c.sha256.in_(list(wanted)))
    return {row.sha256: row for row in fetch_all(conn, ChunkRow, every)}


def mark_ready(tx: Tx, name: UploadName, chunks: Sequence[ChunkRow]) -> bool:
    """Notes that the store has these chunks of an upload, with their content. False if one of them, or the upload, was
    deleted meanwhile: nothing is noted then."""
    _lock(tx.conn, name.project)
    uids = {chunk.uid for chunk in chunks}
    used_us = tx.conn.execute(select(UPLOADS.c.used_us).where(_is(name))).scalar()
    if used_us is None or known_uids(tx.conn, list(uids)) != uids:
        return False
    tx.conn.execute(update(UPLOAD_CHUNKS).where(UPLOAD_CHUNKS.c.uid.in_(uids)).values(is_ready=True))
    if tx.now - used_us > _NOTE_EVERY_US:
        tx.conn.execute(update(UPLOADS).where(_is(name)).values(used_us=tx.now))
    with_one = select(UPLOAD_PARTS.c.digest).where(
        UPLOAD_PARTS.c.project == name.project, UPLOAD_PARTS.c.sha256.in_([chunk.sha256 for chunk in chunks])
    )
    _note_ready(tx, name.project, UPLOADS.c.digest.in_(with_one))
    return True


def mark_lost(tx: Tx, project: str, chunks: Sequence[ChunkRow]) -> None:
    """Notes that the store does not have these chunks any more: every upload that has one of them lacks it from now on.
    What was sent again meanwhile stays as it is.

    A lost chunk gets another uid: its object is a new one, and what the old key leads to is garbage.
    """
    _lock(tx.conn, project)
    lost = []
    for chunk in chunks:
        same = (UPLOAD_CHUNKS.c.project == project, UPLOAD_CHUNKS.c.uid == chunk.uid, UPLOAD_CHUNKS.c.is_ready)
        if tx.conn.execute(update(UPLOAD_CHUNKS).where(*same).values(uid=new_uid(tx.now), is_ready=False)).rowcount:
            lost.append(chunk.sha256)
    for start in range(0, len(lost), _VALUES):
        with_one = select(UPLOAD_PARTS.c.digest).where(
            UPLOAD_PARTS.c.project == project, UPLOAD_PARTS.c.sha256.in_(lost[start : start + _VALUES])
        )
        own = (UPLOADS.c.project == project, UPLOADS.c.digest.in_(with_one))
        # In the order of jobs that are being created, so that no two transactions wait for each other.
        tx.conn.execute(select(UPLOADS.c.digest).where(*own).order_by(UPLOADS.c.digest).with_for_update()).all()
        tx.conn.execute(update(UPLOADS).where(*own).values(ready_us=None))


def remove(tx: Tx, name: UploadName) -> bool:
    """Deletes an upload; False if there is none. Its objects in the store are garbage from then on. Raises InUse."""
    _lock(tx.conn, name.project)
    # After waiting for a job that is being created, the next statement sees what that job uses.
    if tx.conn.execute(select(UPLOADS.c.digest).where(_is(name)).with_for_update()).first() is None:
        return False
    if used := list(names_of_users(tx.conn, name)):
        raise InUse(used)
    _delete(tx, name.project, UPLOADS.c.digest == name.digest)
    return True


def delete_unused(tx: Tx, used_before_us: int, limit: int) -> int:
    """Deletes uploads that no job and no sweep needs and that were last used before a moment; returns how many."""
    is_old = UPLOADS.c.used_us < used_before_us
    old = select(UPLOADS.c.project, UPLOADS.c.digest).where(is_old, *_is_unused()).order_by(UPLOADS.c.used_us)
    found = [UploadName(*row) for row in tx.conn.execute(old.limit(limit))]
    by_project: dict[str, list[str]] = {}
    for project, digest in sorted(found):
        by_project.setdefault(project, []).append(digest)
    gone = 0
    for project, digests in by_project.items():
        _lock(tx.conn, project)
        own = (UPLOADS.c.project == project, UPLOADS.c.digest.in_(digests))
        tx.conn.execute(select(UPLOADS.c.digest).where(*own).order_by(UPLOADS.c.digest).with_for_update()).all()
        gone += _delete(tx, project, UPLOADS.c.digest.in_(digests) & is_old & and_(*_is_unused()))
    return gone


def known_uids(conn: Connection, uids: Sequence[str]) -> set[str]:
    """Those of these uids that chunks have."""
    return set(conn.execute(select(UPLOAD_CHUNKS.c.uid).where(UPLOAD_CHUNKS.c.uid.in_(uids))).scalars())


def _existing(row: UploadRow | None) -> UploadRow:
    assert row is not None  # noqa: S101 (it was written in this transaction)
    return row


def _check(conn: Connection, new: NewUpload, row: UploadRow | None, limits: Limits) -> dict[str, ChunkRow]:
    """The chunks of a new upload that the project has or has announced."""
    if row is not None:
        if row.kind is not new.kind:
            raise Contradiction(f"this content was sent as {row.kind.value} before, and must be that again")
        return {}
    project = new.name.project
    known = _known_chunks(conn, project, new.sizes)
    for sha256, chunk in known.items():
        if chunk.size_bytes != new.sizes[sha256]:
            raise Contradiction(
                f"the chunk {sha256} has {chunk.size_bytes:,} bytes in another upload of the project, got "
                f"{new.sizes[sha256]:,}; delete that upload, or send the file again"
            )
    added = sum(size for sha256, size in new.sizes.items() if sha256 not in known)
    totals = totals_of(conn, [project]).get(project, UploadTotalRow(project, 0, 0))
    limit = quotas.upload_limit(conn, project, limits.stored_bytes)
    if added and totals.stored_bytes + added > limit:
        raise TooMuch(project, "stored_bytes", totals.stored_bytes + added, limit)
    if totals.parts + new.parts > limits.parts:
        raise TooMuch(project, "parts", totals.parts + new.parts, limits.parts)
    return known


def totals_of(conn: Connection, projects: Sequence[str]) -> dict[str, UploadTotalRow]:
    """The totals of the uploads of projects; none of projects that never had one."""
    rows = fetch_all(conn, UploadTotalRow, select(UPLOAD_TOTALS).where(UPLOAD_TOTALS.c.project.in_(projects)))
    return {row.project: row for row in rows}


def _add(conn: Connection, project: str, *, stored_bytes: int, parts: int) -> None:
    """Changes the totals of a project, whose lock is held."""
    changed = {
        "stored_bytes": UPLOAD_TOTALS.c.stored_bytes + stored_bytes,
        "parts": UPLOAD_TOTALS.c.parts + parts,
    }
    if not conn.execute(update(UPLOAD_TOTALS).where(UPLOAD_TOTALS.c.project == project).values(changed)).rowcount:
        values = {"project": project, "stored_bytes": stored_bytes, "parts": parts}
        conn.execute(insert(UPLOAD_TOTALS).values(values))


def _known_chunks(conn: Connection, project: str, wanted: Iterable[str]) -> dict[str, ChunkRow]:
    own = select(UPLOAD_CHUNKS).where(
        UPLOAD_CHUNKS.c.project == project, UPLOAD_CHUNKS.c.sha256.in_(bindparam("wanted", expanding=True))
    )
    names, found = list(wanted), dict[str, ChunkRow]()
    for start in range(0, len(names), _VALUES):
        rows = fetch_all(conn, ChunkRow, own, {"wanted": names[start : start + _VALUES]})
        found |= {row.sha256: row for row in rows}
    return found


def _note_ready(tx: Tx, project: str, which: ColumnElement[bool]) -> None:
    """Notes which uploads have all their chunks from now on."""
    is_missing = exists().where(
        UPLOAD_PARTS.c.project == UPLOADS.c.project,
        UPLOAD_PARTS.c.digest == UPLOADS.c.digest,
        UPLOAD_CHUNKS.c.project == UPLOAD_PARTS.c.project,
        UPLOAD_CHUNKS.c.sha256 == UPLOAD_PARTS.c.sha256,
        ~UPLOAD_CHUNKS.c.is_ready,
    )
    waiting = (UPLOADS.c.project == project, UPLOADS.c.ready_us.is_(None))
    tx.conn.execute(update(UPLOADS).where(*waiting, which, ~is_missing).values(ready_us=tx.now))


def _delete(tx: Tx, project: str, which: ColumnElement[bool]) -> int:
    """Deletes uploads of a project, and those of their chunks that no other upload has; returns how many uploads."""
    own = UPLOADS.c.project == project
    digests = list(tx.conn.execute(select(UPLOADS.c.digest).where(own, which)).scalars())
    chunks = select(UPLOAD_PARTS.c.sha256).where(UPLOAD_PARTS.c.project == project, UPLOAD_PARTS.c.digest.in_(digests))
    had = list(tx.conn.execute(chunks.distinct()).scalars())
    parts = list(
        tx.conn.execute(delete(UPLOADS).where(own, UPLOADS.c.digest.in_(digests)).returning(UPLOADS.c.parts)).scalars()
    )
    is_used = exists().where(
        UPLOAD_PARTS.c.project == UPLOAD_CHUNKS.c.project, UPLOAD_PARTS.c.sha256 == UPLOAD_CHUNKS.c.sha256
    )
    freed = 0
    for start in range(0, len(had), _VALUES):
        some = UPLOAD_CHUNKS.c.sha256.in_(had[start : start + _VALUES])
        unused = delete(UPLOAD_CHUNKS).where(UPLOAD_CHUNKS.c.project == project, some, ~is_used)
        freed += sum(tx.conn.execute(unused.returning(UPLOAD_CHUNKS.c.size_bytes)).scalars())
    _add(tx.conn, project, stored_bytes=-freed, parts=-sum(parts))
    return len(parts)


def _is_unused() -> tuple[ColumnElement[bool], ...]:
    return tuple(
        ~exists().where(table.c.project == UPLOADS.c.project, table.c.digest == UPLOADS.c.digest) for table in USES
    )


def _chunks(name: UploadName, *columns: Any) -> Any:
    same = (UPLOAD_CHUNKS.c.project == UPLOAD_PARTS.c.project) & (UPLOAD_CHUNKS.c.sha256 == UPLOAD_PARTS.c.sha256)
    return select(*columns).select_from(UPLOAD_PARTS.join(UPLOAD_CHUNKS, same)).where(_is(name, UPLOAD_PARTS))


def _is(name: UploadName, table: Any = UPLOADS) -> ColumnElement[bool]:
    found: ColumnElement[bool] = (table.c.project == name.project) & (table.c.digest == name.digest)
    return found


def _lock(conn: Connection, project: str) -> None:
    if conn.dialect.name == "postgresql":
        conn.execute(select(func.pg_advisory_xact_lock(_LOCK, func.hashtext(project))))
