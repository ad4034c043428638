"""The server itself: tokens, quotas, its identity, and garbage of the store."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import JSON, BigInteger, Column, Double, Index, Named, Table, Text, TypedColumns

from mvprune_service.db.tables.base import METADATA
from mvprune_service.ids import TokenName


class TokenColumns(TypedColumns):
    """An API token. Its secret has 256 random bits, so a plain hash is enough."""

    token_id: Named[str] = Column(Text, primary_key=True)
    project: Named[str] = Column(Text)  # "-": an operator's token, valid for all projects
    display_name: Named[str] = Column(Text)
    scope: Named[str] = Column(Text)
    secret_sha256: Named[str] = Column(Text)
    creator: Named[str] = Column(Text)
    create_us: Named[int] = Column(BigInteger)
    expire_us: Named[int | None] = Column(BigInteger)
    revoke_us: Named[int | None] = Column(BigInteger)
    last_use_us: Named[int | None] = Column(BigInteger)
    resource: Named[str | None] = Column(Text)  # the only job or sweep that it shows


TOKENS = Table(
    "tokens",
    METADATA,
    TokenColumns,
    Index("uq_tokens_secret_sha256", "secret_sha256", unique=True),
    Index("ix_tokens_project_create_us", "project", "create_us", "token_id"),
)


class TokenRow(NamedTuple):
    """A row of `tokens`."""

    token_id: str
    project: str
    display_name: str
    scope: str
    secret_sha256: str
    creator: str
    create_us: int
    expire_us: int | None
    revoke_us: int | None
    last_use_us: int | None
    resource: str | None

    @property
    def name(self) -> TokenName:
        """The token's resource name."""
        return TokenName(self.project, self.token_id)


class ProjectColumns(TypedColumns):
    """Quotas of a project that differ from the server's defaults."""

    project: Named[str] = Column(Text, primary_key=True)
    max_queued_jobs: Named[int | None] = Column(BigInteger)
    max_running_gpus: Named[float | None] = Column(Double)
    max_upload_bytes: Named[int | None] = Column(BigInteger)


PROJECTS = Table(
    "projects",
    METADATA,
    ProjectColumns,
)


class ProjectRow(NamedTuple):
    """A row of `projects`."""

    project: str
    max_queued_jobs: int | None
    max_running_gpus: float | None
    max_upload_bytes: int | None


class InstallationColumns(TypedColumns):
    """The identity of this database, which its copies and backups do not share. One row, made with the tables."""

    uid: Named[str] = Column(Text, primary_key=True)  # random: the same database, whatever its URL, key and home
    # It only grows: on SQLite with each commit, on both databases with each new mark in the store.
    generation: Named[int] = Column(BigInteger)
    # The tokens of the newest marks that this database wrote to its store, the newest last. A copy draws others.
    tokens: Named[list[str]] = Column(JSON)


INSTALLATION = Table(
    "installation",
    METADATA,
    InstallationColumns,
)


class QuarantineColumns(TypedColumns):
    """An object of the store that nothing refers to, from the moment it is found until it is deleted."""

    part: Named[str] = Column(Text, primary_key=True)  # of the store, as garbage collection divides it
    key: Named[str] = Column(Text, primary_key=True)
    modified_us: Named[int] = Column(BigInteger)  # by the store's clock; an upload since then restarts the delay
    found_us: Named[int] = Column(BigInteger)
    size_bytes: Named[int] = Column(BigInteger)


QUARANTINE = Table(
    "quarantine",
    METADATA,
    QuarantineColumns,
)
