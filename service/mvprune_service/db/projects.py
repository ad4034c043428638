"""Projects: their quotas, and what they use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Table, case, delete, func, insert, literal_column, select, union

from mvprune_service.db import uploads
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_all
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.server import PROJECTS, TOKENS, ProjectRow
from mvprune_service.db.tables.sweeps import SWEEPS
from mvprune_service.db.tables.uploads import UPLOADS
from mvprune_service.domain.machine import LIVE_ATTEMPTS, TERMINAL, JobState

_OPERATORS = "-"


@dataclass(frozen=True)
class Project:
    """A project. A quota is None if the server's default applies."""

    project: str
    max_queued_jobs: int | None
    max_running_gpus: float | None
    max_upload_bytes: int | None
    queued_jobs: int
    running_jobs: int
    running_gpus: float
    upload_bytes: int


def page(conn: Connection, after: str, size: int) -> list[Project]:
    """Projects that were ever used, by name, from just after `after`."""
    used = union(
        *(
            select(project).where(project > after).distinct()
            for project in (table.c.project for table in (JOBS, ARTIFACTS, TOKENS, PROJECTS, UPLOADS))
        )
    ).subquery()
    names = select(used.c.project).where(used.c.project != _OPERATORS).order_by(used.c.project).limit(size)
    return _described(conn, conn.execute(names).scalars().all())


class Contents(NamedTuple):
    """What a project has: jobs, sweeps and uploads by state, and its artifacts."""

    jobs: dict[str, int]
    sweeps: dict[str, int]
    uploads: dict[str, int]
    artifacts: int


def described(conn: Connection, project: str) -> tuple[Project, Contents]:
    """One project, which may never have been used."""
    is_ready = case((UPLOADS.c.ready_us.is_not(None), "READY"), else_="INCOMPLETE")
    artifacts = select(func.count()).select_from(ARTIFACTS).where(ARTIFACTS.c.project == project)
    contents = Contents(
        jobs=_counted(conn, JOBS, JOBS.c.state, project),
        sweeps=_counted(conn, SWEEPS, SWEEPS.c.state, project),
        uploads=_counted(conn, UPLOADS, is_ready, project),
        artifacts=conn.execute(artifacts).scalar_one(),
    )
    return _described(conn, [project])[0], contents


def _counted(conn: Connection, table: Table[Any], state: ColumnElement[Any], project: str) -> dict[str, int]:
    counts = select(state.label("state"), func.count().label("number")).select_from(table)
    rows = conn.execute(counts.where(table.c.project == project).group_by("state"))
    return {str(row.state): row.number for row in rows}


def set_quotas(
    tx: Tx, project: str, *, max_queued_jobs: int | None, max_running_gpus: float | None, max_upload_bytes: int | None
) -> Project:
    """Replaces all quotas; None: the server's default."""
    tx.conn.execute(delete(PROJECTS).where(PROJECTS.c.project == project))
    values = {
        "project": project,
        "max_queued_jobs": max_queued_jobs,
        "max_running_gpus": max_running_gpus,
        "max_upload_bytes": max_upload_bytes,
    }
    tx.conn.execute(insert(PROJECTS).values(values))
    return _described(tx.conn, [project])[0]


def _described(conn: Connection, names: Sequence[str]) -> list[Project]:
    found = fetch_all(conn, ProjectRow, select(PROJECTS).where(PROJECTS.c.project.in_(names)))
    quotas = {row.project: row for row in found}
    queued = dict.fromkeys(names, 0)
    running = dict(queued)
    count = func.count(literal_column("1")).label("jobs")
    live = select(JOBS.c.project, JOBS.c.state, count).where(JOBS.c.project.in_(names), JOBS.c.state.not_in(TERMINAL))
    for row in conn.execute(live.group_by(JOBS.c.project, JOBS.c.state)):
        counted = queued if row.state == JobState.QUEUED else running
        counted[row.project] += row.jobs
    held = (
        select(JOBS.c.project, func.sum(ATTEMPTS.c.gpus).label("gpus"))
        .join(ATTEMPTS, ATTEMPTS.c.job_uid == JOBS.c.uid)
        .where(JOBS.c.project.in_(names), ATTEMPTS.c.state.in_(LIVE_ATTEMPTS))
        .group_by(JOBS.c.project)
    )
    gpus = {row.project: float(row.gpus) for row in conn.execute(held)}
    sent = uploads.totals_of(conn, names)
    return [
        Project(
            project=name,
            max_queued_jobs=quotas[name].max_queued_jobs if name in quotas else None,
            max_running_gpus=quotas[name].max_running_gpus if name in quotas else None,
            max_upload_bytes=quotas[name].max_upload_bytes if name in quotas else None,
            queued_jobs=queued[name],
            running_jobs=running[name],
            running_gpus=gpus.get(name, 0.0),
            upload_bytes=sent[name].stored_bytes if name in sent else 0,
        )
        for name in names
    ]
