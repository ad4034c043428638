"""The janitor's deletions from the database, and its reads before it deletes elsewhere.

Every function handles a bounded batch and can be repeated. Several janitors may run at once: the conditions are part
of each DELETE, so a row that changed meanwhile is kept.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, or_, select, tuple_

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.leases import KEPT_CHECKPOINTS, NEWEST_CHECKPOINT
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS
from mvprune_service.db.tables.jobs import JOBS, REQUESTS, JobColumns
from mvprune_service.db.tables.sweeps import SWEEP_REQUESTS
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, AttemptState, JobState


class CheckpointKey(NamedTuple):
    """The place of a checkpoint: attempts/{attempt_uid}/checkpoints/{step}/."""

    attempt_uid: str
    step: int


class ArtifactKey(NamedTuple):
    """The order of artifacts, to read them page by page."""

    project: str
    sha256: str


def forget_requests(tx: Tx, before_us: int, limit: int) -> int:
    """Deletes idempotency keys older than `before_us`, up to `limit` of jobs and of sweeps; returns how many."""
    gone = 0
    for table in (REQUESTS, SWEEP_REQUESTS):
        key = tuple_(table.c.project, table.c.request_id)
        old = select(table.c.project, table.c.request_id).where(table.c.create_us < before_us).limit(limit)
        gone += tx.conn.execute(delete(table).where(key.in_(old))).rowcount
    return gone


def delete_expired_jobs(tx: Tx, limit: int) -> int:
    """Deletes jobs whose retention has passed, with all their rows; returns how many. A teacher that a student waits
    for is kept."""
    expired = and_(JOBS.c.expire_us < tx.now, JOBS.c.state.in_(TERMINAL))
    student = JOBS.alias().with_cols(JobColumns)
    awaited = exists().where(
        student.c.teacher_uid == JOBS.c.uid, student.c.teacher_sha256.is_(None), student.c.state.not_in(TERMINAL)
    )
    batch = select(JOBS.c.uid).where(expired, ~awaited).order_by(JOBS.c.expire_us).limit(limit)
    uids = tx.conn.execute(batch).scalars().all()
    gone = tx.conn.execute(delete(JOBS).where(JOBS.c.uid.in_(uids), expired).returning(JOBS.c.uid)).scalars().all()
    tx.changed.update(gone)
    return len(gone)


def delete_expired_artifacts(tx: Tx, limit: int) -> int:
    """Deletes artifacts whose retention has passed; returns how many. The teacher of a live student is kept."""
    key = tuple_(ARTIFACTS.c.project, ARTIFACTS.c.sha256)
    needed = exists().where(
        JOBS.c.project == ARTIFACTS.c.project,
        JOBS.c.teacher_sha256 == ARTIFACTS.c.sha256,
        JOBS.c.state.not_in(TERMINAL),
    )
    batch = select(ARTIFACTS.c.project, ARTIFACTS.c.sha256).where(ARTIFACTS.c.expire_us < tx.now, ~needed).limit(limit)
    return tx.conn.execute(delete(ARTIFACTS).where(key.in_(batch), ~needed)).rowcount


def drop_checkpoints(tx: Tx, ended_before_us: int, limit: int) -> list[CheckpointKey]:
    """Deletes the rows of checkpoints that no attempt will resume from, and returns them: of a live job all but the
    newest two, of a SUCCEEDED job all, of a FAILED or CANCELLED job all if it ended before `ended_before_us`."""
    age = func.row_number().over(partition_by=CHECKPOINTS.c.job_uid, order_by=NEWEST_CHECKPOINT)
    columns = (CHECKPOINTS.c.attempt_uid, CHECKPOINTS.c.step, CHECKPOINTS.c.job_uid, age.label("age"))
    ranked = select(*columns).join(ATTEMPTS, ATTEMPTS.c.uid == CHECKPOINTS.c.attempt_uid).subquery()
    over = or_(JOBS.c.state == JobState.SUCCEEDED, JOBS.c.end_us < ended_before_us)
    superfluous = and_(JOBS.c.state.not_in(TERMINAL), ranked.c.age > KEPT_CHECKPOINTS)
    batch = (
        select(ranked.c.attempt_uid, ranked.c.step)
        .join(JOBS, JOBS.c.uid == ranked.c.job_uid)
        .where(or_(over, superfluous))
        .limit(limit)
    )
    key = tuple_(CHECKPOINTS.c.attempt_uid, CHECKPOINTS.c.step)
    gone = delete(CHECKPOINTS).where(key.in_(batch)).returning(CHECKPOINTS.c.attempt_uid, CHECKPOINTS.c.step)
    return [CheckpointKey(uid, step) for uid, step in tx.conn.execute(gone)]


def ended_attempts(conn: Connection, uids: Collection[str]) -> set[str]:
    """Those of these attempts that are in this database and have ended."""
    return _attempts(conn, ATTEMPTS.c.uid.in_(uids), ATTEMPTS.c.state.not_in(LIVE_ATTEMPTS))


def lost_attempts(conn: Connection, uids: Collection[str]) -> set[str]:
    """Those of these attempts whose process ended and did not report it."""
    return _attempts(conn, ATTEMPTS.c.uid.in_(uids), ATTEMPTS.c.state == AttemptState.LOST)


def live_attempts(conn: Connection, uids: Collection[str]) -> set[str]:
    """Those of these attempts that may still write to the store."""
    return _attempts(conn, ATTEMPTS.c.uid.in_(uids), ATTEMPTS.c.state.in_(LIVE_ATTEMPTS))


def committed_checkpoints(conn: Connection, uids: Collection[str]) -> set[CheckpointKey]:
    """The committed checkpoints of these attempts."""
    found = select(CHECKPOINTS.c.attempt_uid, CHECKPOINTS.c.step).where(CHECKPOINTS.c.attempt_uid.in_(uids))
    return {CheckpointKey(uid, step) for uid, step in conn.execute(found)}


def oldest_live_attempt_us(conn: Connection) -> int | None:
    """When the oldest live attempt was created."""
    return conn.execute(select(func.min(ATTEMPTS.c.create_us)).where(ATTEMPTS.c.state.in_(LIVE_ATTEMPTS))).scalar()


def page_of_references(conn: Connection, after: ArtifactKey | None, size: int) -> tuple[set[str], ArtifactKey | None]:
    """SHA-256 of the manifests and files of the next `size` artifacts, and the key of the last (None: it was the last
    page)."""
    key = tuple_(ARTIFACTS.c.project, ARTIFACTS.c.sha256)
    found = select(ARTIFACTS.c.project, ARTIFACTS.c.sha256, ARTIFACTS.c.manifest)
    if after is not None:
        found = found.where(key > tuple_(*after))
    rows = conn.execute(found.order_by(ARTIFACTS.c.project, ARTIFACTS.c.sha256).limit(size)).all()
    references = {row.sha256 for row in rows} | {file["sha256"] for row in rows for file in row.manifest["files"]}
    return references, ArtifactKey(rows[-1].project, rows[-1].sha256) if len(rows) == size else None


def _attempts(conn: Connection, *conditions: ColumnElement[bool]) -> set[str]:
    return set(conn.execute(select(ATTEMPTS.c.uid).where(*conditions)).scalars())
