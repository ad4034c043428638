"""Issuers of OpenID Connect."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Column, Index, Named, Table, Text, TypedColumns

from mvprune_service.db.tables.base import METADATA
from mvprune_service.ids import IssuerName


class IssuerColumns(TypedColumns):
    """An issuer whose tokens all servers accept."""

    issuer_id: Named[str] = Column(Text, primary_key=True)
    url: Named[str] = Column(Text)
    audience: Named[str] = Column(Text)
    rule: Named[list[dict[str, Any]]] = Column(JSON)  # as in a file: claims, project, scope
    jwks_url: Named[str] = Column(Text)
    jwks: Named[str] = Column(Text)
    creator: Named[str] = Column(Text)
    create_us: Named[int] = Column(BigInteger)
    update_us: Named[int] = Column(BigInteger)
    version: Named[int] = Column(BigInteger)  # the etag


ISSUERS = Table(
    "issuers",
    METADATA,
    IssuerColumns,
    Index("uq_issuers_url", "url", unique=True),
)


class IssuerRow(NamedTuple):
    """A row of `issuers`."""

    issuer_id: str
    url: str
    audience: str
    rule: list[dict[str, Any]]
    jwks_url: str
    jwks: str
    creator: str
    create_us: int
    update_us: int
    version: int

    @property
    def name(self) -> IssuerName:
        """The issuer's resource name."""
        return IssuerName(self.issuer_id)

    @property
    def settings(self) -> dict[str, Any]:
        """What a file would say of it."""
        return {name: getattr(self, name) for name in ("url", "audience", "rule", "jwks_url", "jwks")}
