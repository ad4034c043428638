"""Which database this is: its identity, and the marks that it has written to its store."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, select, update

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.tables.server import INSTALLATION, QUARANTINE

_REMEMBERED = 64  # tokens: a mark that a replica was slow to write is still known


@dataclass(frozen=True)
class Installation:
    """The database's identity. See `InstallationColumns`."""

    uid: str
    generation: int
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """A mark in a store: this database has stored something there."""

    database: str
    generation: int
    token: str


def installation(conn: Connection) -> Installation:
    """The identity of this database."""
    row = conn.execute(select(INSTALLATION)).one()
    return Installation(row.uid, row.generation, tuple(row.tokens))


def next_mark(tx: Tx) -> tuple[Mark, Sequence[str]]:
    """A new mark, and the tokens of the earlier ones that this database remembers."""
    row = tx.conn.execute(select(INSTALLATION).with_for_update()).one()
    return _draw(tx, row.uid, row.generation + 1, row.tokens), row.tokens


def adopting_mark(tx: Tx, above: int) -> Mark:
    """A mark for a store that this database adopts. Its generation is greater than `above`. Empties the quarantine:
    notes under other marks do not count."""
    row = tx.conn.execute(select(INSTALLATION).with_for_update()).one()
    tx.conn.execute(delete(QUARANTINE))
    return _draw(tx, row.uid, max(row.generation, above) + 1, row.tokens)


def _draw(tx: Tx, uid: str, generation: int, tokens: list[str]) -> Mark:
    token = secrets.token_hex(8)
    known = [*tokens, token][-_REMEMBERED:]
    tx.conn.execute(update(INSTALLATION).values(generation=generation, tokens=known))
    return Mark(uid, generation, token)
