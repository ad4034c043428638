"""Which database this is: its identity, and the marks that it has written to its store."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, update

from mvprune_service.db.database import Tx
from mvprune_service.db.server_models import INSTALLATION, QUARANTINE

_REMEMBERED = 16  # tokens: replicas may write their marks at the same time


@dataclass(frozen=True)
class Installation:
    """The database's identity. See `InstallationColumns`."""

    uid: str
    generation: int
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """The mark in a store: the database that the store belongs to."""

    database: str
    generation: int
    token: str


def installation(conn: Connection) -> Installation:
    """The identity of this database."""
    row = conn.execute(select(INSTALLATION)).one()
    return Installation(row.uid, row.generation, tuple(row.tokens))


def next_mark(tx: Tx, seen: str | None) -> Mark | None:
    """A new mark that replaces the one with the token `seen` in the store (None: the store has none). None if `seen` is
    not a token of this database."""
    row = tx.conn.execute(select(INSTALLATION).with_for_update()).one()
    if seen is not None and seen not in row.tokens:
        return None
    return _draw(tx, row.uid, row.generation + 1, row.tokens)


def adopting_mark(tx: Tx, above: int) -> Mark:
    """A mark for a store that this database adopts. Its generation is greater than `above`, and no earlier copy of this
    database knows its token. Empties the quarantine: notes under another mark do not count."""
    row = tx.conn.execute(select(INSTALLATION).with_for_update()).one()
    tx.conn.execute(delete(QUARANTINE))
    return _draw(tx, row.uid, max(row.generation, above) + 1, [])


def _draw(tx: Tx, uid: str, generation: int, tokens: list[str]) -> Mark:
    token = secrets.token_hex(16)
    known = [*tokens, token][-_REMEMBERED:]
    tx.conn.execute(update(INSTALLATION).values(generation=generation, tokens=known))
    return Mark(uid, generation, token)
