"""Sweeps, their points and events, and the requests that made them."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    LargeBinary,
    Named,
    Table,
    Text,
    TypedColumns,
)

from mvprune_service.db.tables.base import METADATA, Member
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.sweeping import PointState, SweepState, point_state
from mvprune_service.ids import SweepName


class SweepColumns(TypedColumns):
    """One sweep. Counts are not stored: they follow from the points and their jobs."""

    uid: Named[str] = Column(Text, primary_key=True)
    project: Named[str] = Column(Text)
    sweep_id: Named[str] = Column(Text)
    display_name: Named[str] = Column(Text)
    spec: Named[bytes] = Column(LargeBinary)  # SweepSpec
    policy: Named[bytes] = Column(LargeBinary)  # SweepPolicy
    labels: Named[dict[str, str]] = Column(JSON)
    notes: Named[list[str]] = Column(JSON)
    model_sizes: Named[dict[str, str]] = Column(JSON)  # model to its ModelSize, in base64
    creator: Named[str] = Column(Text)
    inputs_us: Named[int] = Column(BigInteger)  # when the newest of its input files was modified
    state: Named[SweepState] = Column(Member(SweepState))
    state_reason: Named[str] = Column(Text)
    recommendation: Named[bytes | None] = Column(LargeBinary)  # Recommendation
    front: Named[list[int]] = Column(JSON)  # points that no other point dominates
    create_us: Named[int] = Column(BigInteger)
    active_us: Named[int] = Column(BigInteger)  # since when its time counts: its creation, or the last retry
    end_us: Named[int | None] = Column(BigInteger)
    update_us: Named[int] = Column(BigInteger)
    version: Named[int] = Column(BigInteger)  # the etag
    last_sequence: Named[int] = Column(BigInteger)  # of its events


SWEEPS = Table(
    "sweeps",
    METADATA,
    SweepColumns,
    Index("uq_sweeps_project_sweep_id", "project", "sweep_id", unique=True),
    Index("ix_sweeps_project_create_us", "project", "create_us", "uid"),
    Index("ix_sweeps_state", "state"),
)


class SweepRow(NamedTuple):
    """A row of `sweeps`."""

    uid: str
    project: str
    sweep_id: str
    display_name: str
    spec: bytes
    policy: bytes
    labels: dict[str, str]
    notes: list[str]
    model_sizes: dict[str, str]
    creator: str
    inputs_us: int
    state: SweepState
    state_reason: str
    recommendation: bytes | None
    front: list[int]
    create_us: int
    active_us: int
    end_us: int | None
    update_us: int
    version: int
    last_sequence: int

    @property
    def name(self) -> SweepName:
        """The sweep's resource name."""
        return SweepName(self.project, self.sweep_id)


class PointColumns(TypedColumns):
    """One cell of a sweep. It is a row from the beginning; its job is created when there is room for it."""

    sweep_uid: Named[str] = Column(Text, ForeignKey("sweeps.uid", ondelete="CASCADE"), primary_key=True)
    number: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)  # from 1
    cell: Named[dict[str, Any]] = Column(JSON)
    spec: Named[bytes] = Column(LargeBinary)  # CompressionSpec, before its teacher's job is known
    spec_sha256: Named[str] = Column(Text)
    job_uid: Named[str | None] = Column(Text, ForeignKey("jobs.uid", ondelete="SET NULL"), index=True)
    job_id: Named[str] = Column(Text)  # "" until a job was created; it stays when the job is deleted
    reused: Named[bool] = Column(Boolean)  # the job was there before
    again: Named[bool] = Column(Boolean)  # its job has ended and is to run again
    skip_reason: Named[str] = Column(Text)  # not "": it gets no job
    result: Named[dict[str, Any] | None] = Column(
        JSON(none_as_null=True)
    )  # of a job that SUCCEEDED: kept when the job is deleted


POINTS = Table(
    "sweep_points",
    METADATA,
    PointColumns,
    Index("uq_sweep_points_sweep_uid_spec_sha256", "sweep_uid", "spec_sha256", unique=True),
)


class PointRow(NamedTuple):
    """A row of `sweep_points` with what decides of its job; the latter is None where there is no job."""

    sweep_uid: str
    number: int
    cell: dict[str, Any]
    spec_sha256: str
    job_uid: str | None
    job_id: str
    reused: bool
    again: bool
    skip_reason: str
    result: dict[str, Any] | None
    job_state: JobState | None
    job_reason: str | None
    teacher_uid: str | None

    @property
    def state(self) -> PointState:
        """The point's state."""
        return point_state(
            job=self.job_state,
            had_job=bool(self.job_id),
            again=self.again,
            skipped=bool(self.skip_reason),
            has_result=self.result is not None,
        )


class ShownPointRow(NamedTuple):
    """A row of `sweep_points` with what lists show of it and its job."""

    point: PointRow
    spec: bytes
    progress: bytes | None
    failure_reason: FailureReason | None
    failure_message: str | None


class SweepEventColumns(TypedColumns):
    """Audit trail of a sweep."""

    sweep_uid: Named[str] = Column(Text, ForeignKey("sweeps.uid", ondelete="CASCADE"), primary_key=True)
    sequence: Named[int] = Column(BigInteger, primary_key=True, autoincrement=False)
    time_us: Named[int] = Column(BigInteger)
    type: Named[str] = Column(Text)
    actor: Named[str] = Column(Text)
    details: Named[dict[str, str]] = Column(JSON)


SWEEP_EVENTS = Table("sweep_events", METADATA, SweepEventColumns)


class SweepEventRow(NamedTuple):
    """A row of `sweep_events`."""

    sweep_uid: str
    sequence: int
    time_us: int
    type: str
    actor: str
    details: dict[str, str]


class SweepRequestColumns(TypedColumns):
    """Idempotency: which sweep a request created, and the digest of the request's body."""

    project: Named[str] = Column(Text, primary_key=True)
    request_id: Named[str] = Column(Text, primary_key=True)
    body_sha256: Named[str] = Column(Text)
    sweep_uid: Named[str] = Column(Text, ForeignKey("sweeps.uid", ondelete="CASCADE"), index=True)
    create_us: Named[int] = Column(BigInteger)


SWEEP_REQUESTS = Table(
    "sweep_requests",
    METADATA,
    SweepRequestColumns,
    Index("ix_sweep_requests_create_us", "create_us"),
)


class SweepRequestRow(NamedTuple):
    """A row of `sweep_requests`."""

    project: str
    request_id: str
    body_sha256: str
    sweep_uid: str
    create_us: int
