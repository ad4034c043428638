"""The audit: rows that are added and listed, and deleted only when they are old."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, select, tuple_

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Insert, fetch_all
from mvprune_service.db.list_page import ListPage
from mvprune_service.db.tables.audit import AUDIT, AuditRow
from mvprune_service.ids import new_uid

_INSERT_ENTRY = Insert(AuditRow, AUDIT)


class Entry(NamedTuple):
    """What a call did; the fields are those of `AuditRow`."""

    project: str
    principal: str
    method: str
    resource: str
    code: str
    address: str
    request_id: str


def add(tx: Tx, entry: Entry) -> None:
    """Adds an entry, which belongs to what else the transaction does."""
    _INSERT_ENTRY(tx.conn, {"create_us": tx.now, "uid": new_uid(tx.now), **entry._asdict()})


def page(conn: Connection, project: str | None, page: ListPage) -> list[AuditRow]:
    """Entries of a project; None: of all."""
    found = select(AUDIT)
    return fetch_all(conn, AuditRow, page.of(found if project is None else found.where(AUDIT.c.project == project)))


def prune(tx: Tx, before_us: int, limit: int) -> int:
    """Deletes entries of before a time, the oldest `limit` of them; returns how many."""
    key = tuple_(AUDIT.c.create_us, AUDIT.c.uid)
    old = select(AUDIT.c.create_us, AUDIT.c.uid).where(AUDIT.c.create_us < before_us)
    oldest = old.order_by(AUDIT.c.create_us, AUDIT.c.uid).limit(limit)
    return tx.conn.execute(delete(AUDIT).where(key.in_(oldest))).rowcount
