"""Artifacts."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import JSON, BigInteger, Column, ForeignKey, Index, Named, Table, Text, TypedColumns

from mvprune_service.db.tables.base import METADATA


class ArtifactColumns(TypedColumns):
    """A published artifact. It remains when its job is deleted."""

    project: Named[str] = Column(Text, primary_key=True)
    sha256: Named[str] = Column(Text, primary_key=True)
    job_uid: Named[str | None] = Column(Text, ForeignKey("jobs.uid", ondelete="SET NULL"), index=True)
    attempt: Named[int] = Column(BigInteger)
    manifest_bytes: Named[int] = Column(BigInteger)
    manifest: Named[dict[str, Any]] = Column(JSON)
    create_us: Named[int] = Column(BigInteger)
    expire_us: Named[int | None] = Column(BigInteger)


ARTIFACTS = Table(
    "artifacts",
    METADATA,
    ArtifactColumns,
    Index("ix_artifacts_project_create_us", "project", "create_us", "sha256"),
    Index("ix_artifacts_expire_us", "expire_us"),
)


class ArtifactRow(NamedTuple):
    """A row of `artifacts`, and the id of its job unless the job was deleted."""

    project: str
    sha256: str
    job_uid: str | None
    attempt: int
    manifest_bytes: int
    manifest: dict[str, Any]
    create_us: int
    expire_us: int | None
    job_id: str | None
