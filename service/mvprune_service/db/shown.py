"""What a token shows that is for one job or one sweep."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, exists, or_, select

from mvprune_service import ids
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.sweeps import POINTS, SWEEPS

Name = ids.JobName | ids.SweepName


def is_there(conn: Connection, name: Name) -> bool:
    """Whether there is this job or sweep."""
    return _any(conn, _is_job(name) if isinstance(name, ids.JobName) else _is_sweep(name))


def shows(conn: Connection, shared: Name, since_us: int, wanted: str) -> bool:
    """Whether what has the name `wanted` is `shared`, or of its attempts, jobs or artifacts.

    Args:
        since_us: when the token was created. A job or sweep that took the name of `shared` later is another one.
    """
    if isinstance(shared, ids.JobName):
        job = and_(_is_job(shared), JOBS.c.create_us <= since_us)
    else:
        found = select(SWEEPS.c.uid).where(_is_sweep(shared), SWEEPS.c.create_us <= since_us)
        if (uid := conn.execute(found).scalar()) is None:
            return False
        # A point may be another sweep's job, and a sweep's job, such as a teacher, no point.
        points = select(POINTS.c.job_uid).where(POINTS.c.sweep_uid == uid)
        its = or_(JOBS.c.sweep_id == shared.sweep, JOBS.c.uid.in_(points))
        job = and_(JOBS.c.project == shared.project, its)
    if name := ids.parse_job(wanted) or ids.parse_attempt(wanted):
        return _any(conn, and_(job, _is_job(ids.JobName(name.project, name.job))))
    if artifact := ids.parse_artifact(wanted):
        return _any(conn, and_(job, JOBS.c.project == artifact.project, JOBS.c.artifact_sha256 == artifact.sha256))
    return isinstance(shared, ids.SweepName) and ids.parse_sweep(wanted) == shared


def _is_job(name: ids.JobName) -> ColumnElement[bool]:
    return and_(JOBS.c.project == name.project, JOBS.c.job_id == name.job)


def _is_sweep(name: ids.SweepName) -> ColumnElement[bool]:
    return and_(SWEEPS.c.project == name.project, SWEEPS.c.sweep_id == name.sweep)


def _any(conn: Connection, condition: Any) -> bool:
    return bool(conn.execute(select(exists().where(condition))).scalar())
