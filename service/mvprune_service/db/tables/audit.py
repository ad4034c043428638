"""The audit."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Index, Named, Table, Text, TypedColumns

from mvprune_service.db.tables.base import METADATA


class AuditColumns(TypedColumns):
    """What a call did. Rows are only added, in the transaction of the change, until they are too old."""

    create_us: Named[int] = Column(BigInteger, primary_key=True)
    uid: Named[str] = Column(Text, primary_key=True)
    project: Named[str] = Column(Text)  # "-": none
    principal: Named[str] = Column(Text)
    method: Named[str] = Column(Text)
    resource: Named[str] = Column(Text)
    code: Named[str] = Column(Text)  # of gRPC
    address: Named[str] = Column(Text)
    request_id: Named[str] = Column(Text)


AUDIT = Table(
    "audit",
    METADATA,
    AuditColumns,
    Index("ix_audit_project_create_us", "project", "create_us", "uid"),
)


class AuditRow(NamedTuple):
    """A row of `audit`."""

    create_us: int
    uid: str
    project: str
    principal: str
    method: str
    resource: str
    code: str
    address: str
    request_id: str
