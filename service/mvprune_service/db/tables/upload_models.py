"""The tables of uploads. See models.py."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Named,
    Table,
    Text,
    TypedColumns,
)

from mvprune.sources.uploads import Kind
from mvprune_service.db.tables.models import METADATA, Member

_OF_UPLOAD = (["project", "digest"], ["uploads.project", "uploads.digest"])


class UploadColumns(TypedColumns):
    """A model's folder or a data file that a client sends."""

    project: Named[str] = Column(Text, primary_key=True)
    digest: Named[str] = Column(Text, primary_key=True)
    kind: Named[Kind] = Column(Member(Kind))
    display_name: Named[str] = Column(Text)
    files: Named[list[dict[str, Any]]] = Column(JSON)  # path, size_bytes, chunks of each, by path
    total_bytes: Named[int] = Column(BigInteger)
    creator: Named[str] = Column(Text)
    create_us: Named[int] = Column(BigInteger)
    used_us: Named[int] = Column(BigInteger)  # when it was last announced or sent, or a job or sweep began to use it
    ready_us: Named[int | None] = Column(BigInteger)  # since when the store has all its chunks; None: it lacks some
    parts: Named[int] = Column(BigInteger)  # its files and its different chunks


UPLOADS = Table(
    "uploads",
    METADATA,
    UploadColumns,
    Index("ix_uploads_project_create_us", "project", "create_us", "digest"),
    Index("ix_uploads_used_us", "used_us"),
)


class ChunkColumns(TypedColumns):
    """A chunk of a project's uploads. Its object in the store is uploads/{uid}; a uid is never used again."""

    project: Named[str] = Column(Text, primary_key=True)
    sha256: Named[str] = Column(Text, primary_key=True)
    uid: Named[str] = Column(Text)
    size_bytes: Named[int] = Column(BigInteger)
    is_ready: Named[bool] = Column(Boolean)  # the store has it, and its content was checked
    create_us: Named[int] = Column(BigInteger)


UPLOAD_CHUNKS = Table("upload_chunks", METADATA, ChunkColumns, Index("uq_upload_chunks_uid", "uid", unique=True))


class PartColumns(TypedColumns):
    """An upload has a chunk."""

    project: Named[str] = Column(Text, primary_key=True)
    digest: Named[str] = Column(Text, primary_key=True)
    sha256: Named[str] = Column(Text, primary_key=True)


UPLOAD_PARTS = Table(
    "upload_parts",
    METADATA,
    PartColumns,
    ForeignKeyConstraint(*_OF_UPLOAD, ondelete="CASCADE"),
    ForeignKeyConstraint(["project", "sha256"], ["upload_chunks.project", "upload_chunks.sha256"]),
    Index("ix_upload_parts_project_sha256", "project", "sha256"),
)


class UploadTotalColumns(TypedColumns):
    """The sums over a project's uploads. They change in the transactions that add and delete rows."""

    project: Named[str] = Column(Text, primary_key=True)
    stored_bytes: Named[int] = Column(BigInteger)  # of all chunks
    parts: Named[int] = Column(BigInteger)  # of all uploads


UPLOAD_TOTALS = Table("upload_totals", METADATA, UploadTotalColumns)


class JobUploadColumns(TypedColumns):
    """A job needs an upload: that is kept until the job is deleted."""

    job_uid: Named[str] = Column(Text, ForeignKey("jobs.uid", ondelete="CASCADE"), primary_key=True)
    project: Named[str] = Column(Text)
    digest: Named[str] = Column(Text, primary_key=True)


JOB_UPLOADS = Table(
    "job_uploads",
    METADATA,
    JobUploadColumns,
    ForeignKeyConstraint(*_OF_UPLOAD, ondelete="RESTRICT"),
    Index("ix_job_uploads_project_digest", "project", "digest"),
)


class SweepUploadColumns(TypedColumns):
    """A sweep needs an upload, for jobs that it has not created yet."""

    sweep_uid: Named[str] = Column(Text, ForeignKey("sweeps.uid", ondelete="CASCADE"), primary_key=True)
    project: Named[str] = Column(Text)
    digest: Named[str] = Column(Text, primary_key=True)


SWEEP_UPLOADS = Table(
    "sweep_uploads",
    METADATA,
    SweepUploadColumns,
    ForeignKeyConstraint(*_OF_UPLOAD, ondelete="RESTRICT"),
    Index("ix_sweep_uploads_project_digest", "project", "digest"),
)
