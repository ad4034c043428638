"""Heartbeats of many workers in one transaction: one read, and one statement for each table that changes.

Jobs are changed before attempts, and in the order of their uids, as by all other transactions: none waits for another
in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, select, tuple_, update

from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_all
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.attempts import ATTEMPTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.domain.leases import StaleLease, check_claimed, check_fence, is_renewed
from mvprune_service.domain.machine import AttemptState, JobState

_PROGRESS = (
    update(JOBS)
    .where(JOBS.c.uid == bindparam("of"), JOBS.c.fencing_token == bindparam("token"))
    .values(progress=bindparam("now"), version=JOBS.c.version + 1, update_us=bindparam("at"))
)


class Beat(NamedTuple):
    """A heartbeat. `progress`: serialized, None: as before."""

    fence: Fence
    progress: bytes | None


class Renewed(NamedTuple):
    """The news for a job's worker."""

    state: JobState
    cancel_grace_us: int | None


class _Row(NamedTuple):
    uid: str
    project: str
    job_id: str
    state: JobState
    fencing_token: int
    attempt: int
    progress: bytes | None
    cancel_grace_us: int | None
    attempt_uid: str
    attempt_state: AttemptState


def heartbeats(tx: Tx, beats: Sequence[Beat], *, lease_us: int) -> list[Renewed | StaleLease]:
    """Extends leases and records progress; an answer for each heartbeat."""
    rows = _rows(tx.conn, beats)
    answers: list[Renewed | StaleLease] = []
    changed: dict[str, dict[str, object]] = {}
    renewed: set[str] = set()
    for fence, progress in beats:
        row = rows.get((fence.attempt.project, fence.attempt.job))
        try:
            if row is None:
                raise StaleLease("no such attempt")
            check_fence(fence.attempt.number, fence.token, newest=row.attempt, current=row.fencing_token)
            check_claimed(row.attempt_state)
        except StaleLease as error:
            answers.append(error)
            continue
        answers.append(Renewed(row.state, row.cancel_grace_us))
        if is_renewed(row.state):
            renewed.add(row.attempt_uid)
        if progress is not None and progress != row.progress:
            changed[row.uid] = {"of": row.uid, "token": fence.token, "now": progress, "at": tx.now}
    if changed:
        tx.conn.execute(_PROGRESS, [changed[uid] for uid in sorted(changed)])
        tx.changed.update(changed)
    if renewed:
        # Whatever ended or offered its result since it was read is left as it is.
        still = (ATTEMPTS.c.state == AttemptState.RUNNING, ATTEMPTS.c.manifest_sha256.is_(None))
        extended = update(ATTEMPTS).where(ATTEMPTS.c.uid.in_(sorted(renewed)), *still)
        tx.conn.execute(extended.values(heartbeat_us=tx.now, lease_expire_us=tx.now + lease_us))
    return answers


def _rows(conn: Connection, beats: Sequence[Beat]) -> dict[tuple[str, str], _Row]:
    names = {(beat.fence.attempt.project, beat.fence.attempt.job) for beat in beats}
    newest = and_(ATTEMPTS.c.job_uid == JOBS.c.uid, ATTEMPTS.c.number == JOBS.c.attempt)
    columns = (
        JOBS.c.uid,
        JOBS.c.project,
        JOBS.c.job_id,
        JOBS.c.state,
        JOBS.c.fencing_token,
        JOBS.c.attempt,
        JOBS.c.progress,
        JOBS.c.cancel_grace_us,
        ATTEMPTS.c.uid.label("attempt_uid"),
        ATTEMPTS.c.state.label("attempt_state"),
    )
    found = select(*columns).join(ATTEMPTS, newest).where(tuple_(JOBS.c.project, JOBS.c.job_id).in_(sorted(names)))
    return {(row.project, row.job_id): row for row in fetch_all(conn, _Row, found)}
