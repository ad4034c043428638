"""Uploads, and which jobs and sweeps use them."""

from __future__ import annotations

from typing import Any, NamedTuple

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

from mvprune.sources.uploads import File, Kind
from mvprune_service.db.tables.base import METADATA, Member
from mvprune_service.ids import UploadName

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


class UploadRow(NamedTuple):
    """A row of `uploads`."""

    project: str
    digest: str
    kind: Kind
    display_name: str
    files: list[dict[str, Any]]
    total_bytes: int
    creator: str
    create_us: int
    used_us: int
    ready_us: int | None
    parts: int

    @property
    def name(self) -> UploadName:
        """The upload's resource name."""
        return UploadName(self.project, self.digest)

    def described(self) -> list[File]:
        """Its files."""
        return [File(file["path"], file["size_bytes"], tuple(file["chunks"])) for file in self.files]


class ListedUploadRow(NamedTuple):
    """A row of `uploads` without its files, and the number of jobs and sweeps that use it."""

    project: str
    digest: str
    kind: Kind
    display_name: str
    total_bytes: int
    creator: str
    create_us: int
    used_us: int
    ready_us: int | None
    parts: int
    jobs: int

    @property
    def name(self) -> UploadName:
        """The upload's resource name."""
        return UploadName(self.project, self.digest)


class ChunkColumns(TypedColumns):
    """A chunk of a project's uploads. Its object in the store is uploads/{uid}; a uid is never used again."""

    project: Named[str] = Column(Text, primary_key=True)
    sha256: Named[str] = Column(Text, primary_key=True)
    uid: Named[str] = Column(Text)
    size_bytes: Named[int] = Column(BigInteger)
    is_ready: Named[bool] = Column(Boolean)  # the store has it, and its content was checked
    create_us: Named[int] = Column(BigInteger)


UPLOAD_CHUNKS = Table("upload_chunks", METADATA, ChunkColumns, Index("uq_upload_chunks_uid", "uid", unique=True))


class ChunkRow(NamedTuple):
    """A row of `upload_chunks`."""

    project: str
    sha256: str
    uid: str
    size_bytes: int
    is_ready: bool
    create_us: int


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


class UploadTotalRow(NamedTuple):
    """A row of `upload_totals`."""

    project: str
    stored_bytes: int
    parts: int


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
