"""All rows that the invariants are about, at one moment. Read by the driver itself: it happens after every write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Table

from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS, LOG_CHUNKS, LOGS, METRICS
from mvprune_service.db.tables.jobs import EVENTS, JOBS
from mvprune_service.db.tables.sweeps import POINTS, SWEEP_EVENTS, SWEEPS
from mvprune_service.db.tables.uploads import JOB_UPLOADS, UPLOAD_CHUNKS, UPLOAD_PARTS, UPLOADS
from mvprune_service.db.tables.webhooks import DELIVERIES, WEBHOOKS
from mvprune_service.domain.machine import LIVE_ATTEMPTS

Rows = Mapping[Any, Any]


@dataclass(frozen=True)
class Snapshot:
    """The rows. JSON is text, and enumerations are the text of their members."""

    jobs: Rows  # by uid, in the order of creation
    attempts: Rows
    events: Mapping[str, Sequence[Any]]  # by job, in order
    artifacts: Rows  # by project and SHA-256
    checkpoints: Rows  # by attempt and step
    logs: Mapping[str, Sequence[Any]]  # by attempt
    log_chunks: Mapping[str, Sequence[Any]]
    metrics: Mapping[str, Sequence[Any]]
    sweeps: Rows
    points: Mapping[str, Sequence[Any]]  # by sweep, in order
    sweep_events: Mapping[str, Sequence[Any]]
    uploads: Rows  # by project and digest
    chunks: Rows  # of uploads, by project and SHA-256
    parts: Mapping[str, Sequence[Any]]  # by digest
    uses: Mapping[str, Sequence[Any]]  # of uploads, by job
    webhooks: Sequence[Any]
    deliveries: Sequence[Any]

    def attempts_of(self, job_uid: str) -> list[Any]:
        """A job's attempts, by number."""
        return sorted((row for row in self.attempts.values() if row.job_uid == job_uid), key=lambda row: row.number)

    def is_live(self, attempt_uid: str) -> bool:
        """Whether a worker of this attempt may still be believed."""
        row = self.attempts.get(attempt_uid)
        return row is not None and row.state in LIVE_ATTEMPTS

    def differences(self, other: Snapshot) -> list[str]:
        """What differs, by name."""
        return [field.name for field in fields(self) if getattr(self, field.name) != getattr(other, field.name)]


class _Reader(NamedTuple):
    sql: str
    make: Callable[[Any], Any]


@cache
def _reader(table: Table[Any], order: str) -> _Reader:
    names = [column.name for column in table.columns]
    row: Any = NamedTuple(f"{table.name.title()}Row", [(name, Any) for name in names])
    columns = ", ".join(f'"{name}"' for name in names)
    return _Reader(f'SELECT {columns} FROM "{table.name}" ORDER BY {order}', row._make)  # noqa: S608


def take(driver: Any) -> Snapshot:
    """Reads everything."""

    def rows(table: Table[Any], order: str) -> list[Any]:
        reader = _reader(table, order)
        return [reader.make(row) for row in driver.execute(reader.sql)]

    def by(table: Table[Any], key: str, order: str) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = defaultdict(list)
        for row in rows(table, order):
            found[getattr(row, key)].append(row)
        return dict(found)

    return Snapshot(
        jobs={row.uid: row for row in rows(JOBS, "create_us, uid")},
        attempts={row.uid: row for row in rows(ATTEMPTS, "uid")},
        events=by(EVENTS, "job_uid", "sequence"),
        artifacts={(row.project, row.sha256): row for row in rows(ARTIFACTS, "sha256")},
        checkpoints={(row.attempt_uid, row.step): row for row in rows(CHECKPOINTS, "step")},
        logs=by(LOGS, "attempt_uid", '"offset"'),
        log_chunks=by(LOG_CHUNKS, "attempt_uid", '"offset"'),
        metrics=by(METRICS, "attempt_uid", "step"),
        sweeps={row.uid: row for row in rows(SWEEPS, "create_us, uid")},
        points=by(POINTS, "sweep_uid", "number"),
        sweep_events=by(SWEEP_EVENTS, "sweep_uid", "sequence"),
        uploads={(row.project, row.digest): row for row in rows(UPLOADS, "digest")},
        chunks={(row.project, row.sha256): row for row in rows(UPLOAD_CHUNKS, "sha256")},
        parts=by(UPLOAD_PARTS, "digest", "sha256"),
        uses=by(JOB_UPLOADS, "job_uid", "digest"),
        webhooks=rows(WEBHOOKS, "uid"),
        deliveries=rows(DELIVERIES, "event_id"),
    )


def touched(before: Snapshot, after: Snapshot) -> set[str]:
    """The uids of jobs and sweeps that differ, or of which an attempt, a log or a point does."""
    found = _different(before.jobs, after.jobs) | _different(before.sweeps, after.sweeps)
    found |= _different(before.points, after.points)
    attempts = _different(before.attempts, after.attempts) | _different(before.logs, after.logs)
    for uid in attempts | _different(before.log_chunks, after.log_chunks):
        row = after.attempts.get(uid) or before.attempts.get(uid)
        if row is not None:
            found.add(row.job_uid)
    return found


def _different(before: Mapping[str, Any], after: Mapping[str, Any]) -> set[str]:
    return {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
