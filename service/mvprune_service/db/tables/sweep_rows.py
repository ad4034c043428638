"""Rows of the tables of sweeps. See rows.py."""

from __future__ import annotations

from typing import Any, NamedTuple

from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.sweeping import PointState, SweepState, point_state
from mvprune_service.ids import SweepName


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


class SweepEventRow(NamedTuple):
    """A row of `sweep_events`."""

    sweep_uid: str
    sequence: int
    time_us: int
    type: str
    actor: str
    details: dict[str, str]


class SweepRequestRow(NamedTuple):
    """A row of `sweep_requests`."""

    project: str
    request_id: str
    body_sha256: str
    sweep_uid: str
    create_us: int
