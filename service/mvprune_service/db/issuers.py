"""Issuers of OpenID Connect: a few rows, which all servers read again every few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Query, fetch_one
from mvprune_service.db.lifecycle import EtagMismatch
from mvprune_service.db.tables.issuers import ISSUERS, IssuerRow
from mvprune_service.ids import IssuerName

_ALL = Query(IssuerRow, select(ISSUERS).order_by(ISSUERS.c.issuer_id))
_MOST = 100


class IssuerExists(Exception):
    """There is an issuer with this id, or with this URL; the text says which."""


class TooManyIssuers(Exception):
    """There are as many issuers as there may be."""

    limit = _MOST


def create(tx: Tx, name: IssuerName, settings: Mapping[str, Any], *, creator: str) -> IssuerRow:
    """A new issuer. Raises IssuerExists, TooManyIssuers."""
    if issuer_named(tx.conn, name) is not None:
        raise IssuerExists(f"{name} exists already")
    same = fetch_one(tx.conn, IssuerRow, select(ISSUERS).where(ISSUERS.c.url == settings["url"]))
    if same is not None:
        raise IssuerExists(f"{same.name} has the url {same.url} already; change its rules")
    if tx.conn.execute(select(func.count()).select_from(ISSUERS)).scalar_one() >= _MOST:
        raise TooManyIssuers
    row = IssuerRow(issuer_id=name.issuer, **settings, creator=creator, create_us=tx.now, update_us=tx.now, version=1)
    tx.conn.execute(insert(ISSUERS).values(row._asdict()))
    return row


def all_issuers(conn: Connection) -> list[IssuerRow]:
    """All issuers, by id."""
    return _ALL.all(conn)


def issuer_named(conn: Connection, name: IssuerName) -> IssuerRow | None:
    """One issuer."""
    return fetch_one(conn, IssuerRow, select(ISSUERS).where(ISSUERS.c.issuer_id == name.issuer))


def change(tx: Tx, name: IssuerName, settings: Mapping[str, Any], *, version: int) -> IssuerRow | None:
    """Changes an issuer that is at this version. None: there is none. Raises EtagMismatch."""
    row = _at(tx, name, str(version))
    if row is None:
        return None
    values = {**settings, "update_us": tx.now, "version": row.version + 1}
    tx.conn.execute(update(ISSUERS).where(ISSUERS.c.issuer_id == name.issuer).values(values))
    return row._replace(**values)


def remove(tx: Tx, name: IssuerName, *, etag: str = "") -> bool:
    """Deletes an issuer; whether there was one. Raises EtagMismatch."""
    if _at(tx, name, etag) is None:
        return False
    tx.conn.execute(delete(ISSUERS).where(ISSUERS.c.issuer_id == name.issuer))
    return True


def _at(tx: Tx, name: IssuerName, etag: str) -> IssuerRow | None:
    """The locked row. Raises EtagMismatch."""
    its = select(ISSUERS).where(ISSUERS.c.issuer_id == name.issuer).with_for_update()
    row = fetch_one(tx.conn, IssuerRow, its)
    if row is not None and etag and etag != str(row.version):
        raise EtagMismatch
    return row
