"""Logs of attempts. The database has the newest part; what is before it is in the store, in chunks.

The bytes of a log are numbered from 0. Chunks cover the log from its beginning, and rows of `logs` continue where the
last chunk ends, without gap or overlap: one transaction records a chunk and deletes its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, delete, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_one
from mvprune_service.db.tables.attempts import ATTEMPTS, LOG_CHUNKS, LOGS, LONG_LOGS, AttemptRow, LogChunkRow

LOG_CAP = 64 << 20  # bytes that an attempt may log; the rest is dropped
KEPT_BYTES = 16 << 10  # of the end of a log, which the database keeps
LONG_BYTES = 2 * KEPT_BYTES  # of a log in the database from which it is moved when its attempt has ended
CHUNK_BYTES = 1 << 20  # of a log, in a chunk of an attempt that runs; the last one of an attempt has less
_ROWS = 16  # a read
_PIECE_BYTES = 256 << 10  # of a log, that a worker appends at most


class Claimed(NamedTuple):
    """A log that this server moves now: from the byte `moved_bytes` on, until `until_us`."""

    attempt_uid: str
    moved_bytes: int
    until_us: int


class Packed(NamedTuple):
    """An object with a chunk of a log. `size_bytes` are the chunk's, `stored_bytes` and `sha256` the object's."""

    uid: str
    size_bytes: int
    stored_bytes: int
    sha256: str


def append_log(tx: Tx, attempt: AttemptRow, offset: int, data: bytes) -> int:
    """Appends the new part of `data`, nothing after a gap; returns the offset of the next byte."""
    stored = attempt.log_bytes
    fresh = data[stored - offset :] if offset <= stored else b""
    if not fresh:
        return stored
    end = stored + len(fresh)
    if stored < LOG_CAP:
        tx.conn.execute(insert(LOGS).values(attempt_uid=attempt.uid, offset=stored, data=fresh))
        tx.changed.add(attempt.job_uid)
    tx.conn.execute(update(ATTEMPTS).where(ATTEMPTS.c.uid == attempt.uid).values(log_bytes=end))
    if stored <= LONG_BYTES < end:
        _add_long(tx, attempt.uid, 0)
    return end


def end_of_log(attempt: AttemptRow) -> int:
    """A byte after the last one that is kept: `log_bytes` also counts what was dropped."""
    return min(attempt.log_bytes, LOG_CAP + _PIECE_BYTES)


def append_output(tx: Tx, attempt_uid: str, tail_bytes: int, rest: Callable[[bytes], bytes]) -> None:
    """Appends to the log of an attempt that has ended what `rest` makes of its last bytes: of `tail_bytes`, or of all
    that the database has if that is less."""
    attempt = fetch_one(tx.conn, AttemptRow, select(ATTEMPTS).where(ATTEMPTS.c.uid == attempt_uid).with_for_update())
    if attempt is None:
        return
    first = select(func.min(LOGS.c.offset)).where(LOGS.c.attempt_uid == attempt_uid)
    moved = tx.conn.execute(first).scalar() or 0
    tail = _read_rows(tx.conn, attempt_uid, max(moved, attempt.log_bytes - tail_bytes), tail_bytes)
    if append_log(tx, attempt, attempt.log_bytes, rest(tail)) - moved > LONG_BYTES:
        _add_long(tx, attempt_uid, moved)


def read_log(conn: Connection, attempt_uid: str, offset: int, limit: int) -> bytes | LogChunkRow:
    """Up to `limit` bytes of the log from `offset` on, or the chunk with the byte `offset`; b"" at the end."""
    if data := _read_rows(conn, attempt_uid, offset, limit):
        return data
    before = select(LOG_CHUNKS).where(LOG_CHUNKS.c.attempt_uid == attempt_uid, LOG_CHUNKS.c.offset <= offset)
    chunk = fetch_one(conn, LogChunkRow, before.order_by(LOG_CHUNKS.c.offset.desc()).limit(1))
    return chunk if chunk is not None and offset < chunk.offset + chunk.size_bytes else b""


def has_due(conn: Connection, now_us: int) -> bool:
    """Whether there is a log to move."""
    return conn.execute(_due(now_us).limit(1)).first() is not None


def claim_logs(tx: Tx, limit: int, for_us: int) -> list[Claimed]:
    """Claims logs that are to be moved: of an attempt that runs when there is a whole chunk, of one that has ended when
    the database has more than LONG_BYTES. No other server moves them for `for_us`."""
    until_us = tx.now + for_us
    batch = _due(tx.now).order_by(LONG_LOGS.c.due_us).limit(limit).with_for_update(skip_locked=True, of=LONG_LOGS)
    uids = tx.conn.execute(batch).scalars().all()
    claim = update(LONG_LOGS).where(LONG_LOGS.c.attempt_uid.in_(uids)).values(due_us=until_us)
    claimed = tx.conn.execute(claim.returning(LONG_LOGS.c.attempt_uid, LONG_LOGS.c.moved_bytes))
    return [Claimed(row.attempt_uid, row.moved_bytes, until_us) for row in claimed]


def next_chunk(conn: Connection, claimed: Claimed) -> bytes:
    """The content of a claimed log's next chunk. b"" if there is nothing to move: the attempt was deleted, or it
    has ended and the rest of its log is short or exceeded LOG_CAP."""
    log_bytes = conn.execute(select(ATTEMPTS.c.log_bytes).where(ATTEMPTS.c.uid == claimed.attempt_uid)).scalar() or 0
    left = log_bytes - claimed.moved_bytes
    if left <= LONG_BYTES:
        return b""
    size = min(left - KEPT_BYTES, CHUNK_BYTES)
    of_chunk = (LOGS.c.attempt_uid == claimed.attempt_uid, LOGS.c.offset < claimed.moved_bytes + size)
    return b"".join(conn.execute(select(LOGS.c.data).where(*of_chunk).order_by(LOGS.c.offset)).scalars())[:size]


def record_log_chunk(tx: Tx, claimed: Claimed, packed: Packed | None) -> bool:
    """Records a chunk that is in the store, and deletes its rows. False, and nothing is changed, if the claim is over:
    then the object belongs to nothing.

    Args:
        packed: None: there is nothing to move.
    """
    # The same lock as that of append_output, which also decides whether the log is long.
    locked = select(ATTEMPTS.c.log_bytes, ATTEMPTS.c.end_us).where(ATTEMPTS.c.uid == claimed.attempt_uid)
    attempt = tx.conn.execute(locked.with_for_update()).one_or_none()
    mine = (LONG_LOGS.c.attempt_uid == claimed.attempt_uid, LONG_LOGS.c.due_us == claimed.until_us)
    still = tx.conn.execute(select(LONG_LOGS.c.due_us).where(*mine).with_for_update()).one_or_none()
    if attempt is None or still is None or tx.now >= claimed.until_us:
        return False
    end = claimed.moved_bytes
    if packed is not None:
        end += packed.size_bytes
        _replace_rows(tx, claimed, packed, end)
    is_dropped = packed is None and attempt.log_bytes > LOG_CAP  # the rest has no rows
    if attempt.end_us is not None and (is_dropped or attempt.log_bytes - end <= LONG_BYTES):
        tx.conn.execute(delete(LONG_LOGS).where(*mine))
    elif packed is not None:
        tx.conn.execute(update(LONG_LOGS).where(*mine).values(moved_bytes=end, due_us=tx.now))
    return True


def log_chunk_uids(conn: Connection, attempt_uids: Collection[str]) -> set[str]:
    """The uids of the chunks of these attempts' logs."""
    return set(conn.execute(select(LOG_CHUNKS.c.uid).where(LOG_CHUNKS.c.attempt_uid.in_(attempt_uids))).scalars())


def _due(now_us: int) -> Select[Any]:
    whole = ATTEMPTS.c.log_bytes - LONG_LOGS.c.moved_bytes >= CHUNK_BYTES + KEPT_BYTES
    return (
        select(LONG_LOGS.c.attempt_uid)
        .join(ATTEMPTS, ATTEMPTS.c.uid == LONG_LOGS.c.attempt_uid)
        .where(LONG_LOGS.c.due_us <= now_us, or_(ATTEMPTS.c.end_us.is_not(None), whole))
    )


def _add_long(tx: Tx, attempt_uid: str, moved_bytes: int) -> None:
    make = postgresql.insert if tx.conn.dialect.name == "postgresql" else sqlite.insert
    row = {"attempt_uid": attempt_uid, "moved_bytes": moved_bytes, "due_us": tx.now}
    tx.conn.execute(make(LONG_LOGS).values(row).on_conflict_do_nothing())


def _read_rows(conn: Connection, attempt_uid: str, offset: int, limit: int) -> bytes:
    start = select(func.max(LOGS.c.offset)).where(LOGS.c.attempt_uid == attempt_uid, LOGS.c.offset <= offset)
    rows = conn.execute(
        select(LOGS.c.offset, LOGS.c.data)
        .where(LOGS.c.attempt_uid == attempt_uid, LOGS.c.offset >= start.scalar_subquery())
        .order_by(LOGS.c.offset)
        .limit(_ROWS)
    ).all()
    if not rows:
        return b""
    joined = b"".join(row.data for row in rows)
    return joined[offset - rows[0].offset :][:limit]


def _replace_rows(tx: Tx, claimed: Claimed, packed: Packed, end: int) -> None:
    """Puts a chunk in the place of its rows. The rest of a row that is only partly in the chunk becomes a new row."""
    moved = (LOGS.c.attempt_uid == claimed.attempt_uid, LOGS.c.offset < end)
    last = tx.conn.execute(
        select(LOGS.c.offset, LOGS.c.data).where(*moved).order_by(LOGS.c.offset.desc()).limit(1)
    ).one()
    tx.conn.execute(delete(LOGS).where(*moved))
    if rest := last.data[end - last.offset :]:
        tx.conn.execute(insert(LOGS).values(attempt_uid=claimed.attempt_uid, offset=end, data=rest))
    tx.conn.execute(
        insert(LOG_CHUNKS).values(
            attempt_uid=claimed.attempt_uid,
            offset=claimed.moved_bytes,
            size_bytes=packed.size_bytes,
            uid=packed.uid,
            sha256=packed.sha256,
            stored_bytes=packed.stored_bytes,
            create_us=tx.now,
        )
    )
