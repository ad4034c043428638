"""API tokens. The database has only the hashes of their secrets."""

from __future__ import annotations

from sqlalchemy import Connection, and_, bindparam, or_, select, update

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import Insert, Query, fetch_all, fetch_one
from mvprune_service.db.list_page import ListPage
from mvprune_service.db.tables.server import TOKENS, TokenRow
from mvprune_service.ids import TokenName

_WITH_SECRET = Query(TokenRow, select(TOKENS).where(TOKENS.c.secret_sha256 == bindparam("sha256")))
_INSERT_TOKEN = Insert(TokenRow, TOKENS)


def create(
    tx: Tx,
    name: TokenName,
    *,
    secret_sha256: str,
    scope: str,
    display_name: str,
    creator: str,
    expire_us: int | None,
    resource: str | None = None,
) -> TokenRow:
    """A new token."""
    values = {
        "token_id": name.token,
        "project": name.project,
        "display_name": display_name,
        "scope": scope,
        "secret_sha256": secret_sha256,
        "creator": creator,
        "create_us": tx.now,
        "expire_us": expire_us,
        "resource": resource,
    }
    return _INSERT_TOKEN(tx.conn, values)


def with_secret(conn: Connection, secret_sha256: str) -> TokenRow | None:
    """The token whose secret has this hash."""
    return _WITH_SECRET.first(conn, {"sha256": secret_sha256})


def page(conn: Connection, project: str, page: ListPage) -> list[TokenRow]:
    """Tokens of a project."""
    return fetch_all(conn, TokenRow, page.of(select(TOKENS).where(TOKENS.c.project == project)))


def revoke(tx: Tx, name: TokenName) -> TokenRow | None:
    """Revokes a token, unless it is revoked already. None: there is no such token."""
    its = and_(TOKENS.c.project == name.project, TOKENS.c.token_id == name.token)
    tx.conn.execute(update(TOKENS).where(its, TOKENS.c.revoke_us.is_(None)).values(revoke_us=tx.now))
    return fetch_one(tx.conn, TokenRow, select(TOKENS).where(its))


def note_use(tx: Tx, token_id: str, time_us: int) -> None:
    """Records when a token was used last."""
    tx.conn.execute(update(TOKENS).where(TOKENS.c.token_id == token_id).values(last_use_us=time_us))


def exists(conn: Connection, project: str, scope: str, now: int) -> bool:
    """Whether a project has a valid token of this scope."""
    good = select(TOKENS.c.token_id).where(
        TOKENS.c.project == project,
        TOKENS.c.scope == scope,
        TOKENS.c.revoke_us.is_(None),
        or_(TOKENS.c.expire_us.is_(None), TOKENS.c.expire_us > now),
    )
    return conn.execute(good.limit(1)).first() is not None
