"""Quotas of projects: their own, or the server's default."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, func, select

from mvprune_service.db.engine.statements import Query
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.server import PROJECTS, ProjectRow
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.placement import GpuLimits

_QUOTAS = Query(ProjectRow, select(PROJECTS).where(PROJECTS.c.project == bindparam("in_project")))
_GPU_QUOTAS = Query(ProjectRow, select(PROJECTS).where(PROJECTS.c.max_running_gpus.is_not(None)))
_LOCK = 0x6D767073  # of a project's queue, in PostgreSQL: a number that nothing else uses
_PROJECTS = 10_000  # whose counts are remembered at most


class QueueFull(Exception):
    """The project has as many jobs in the queue as its quota allows."""

    def __init__(self, project: str, limit: int) -> None:
        super().__init__(f"{limit} jobs of projects/{project} are in the queue")
        self.project = project
        self.limit = limit


def gpu_limits(conn: Connection, default: float | None) -> GpuLimits:
    """The limits of all projects."""
    quotas = _GPU_QUOTAS.all(conn)
    return GpuLimits({row.project: row.max_running_gpus for row in quotas if row.max_running_gpus is not None}, default)


def upload_limit(conn: Connection, project: str, default: int) -> int:
    """The largest number of bytes of a project's uploads: its own, or `default`."""
    own = _QUOTAS.first(conn, {"in_project": project})
    return default if own is None or own.max_upload_bytes is None else own.max_upload_bytes


class QueueQuota:
    """The limit on the jobs of a project in the queue: its own, or `default`.

    Counting a long queue takes longer than writing a job. On SQLite, where one process writes everything, a count is
    valid for a quarter of the free places that it found: not for all of them, since jobs whose workers were lost return
    to the queue. On PostgreSQL, transactions that write jobs of a project wait for each other, and each counts.
    """

    def __init__(self, default: int) -> None:
        self._default = default
        self._free: dict[str, tuple[int, int]] = {}  # by project: the limit, and jobs until the next count

    def check(self, conn: Connection, project: str) -> None:
        """Raises QueueFull if one more job would exceed the limit."""
        own = _QUOTAS.first(conn, {"in_project": project})
        limit = self._default if own is None or own.max_queued_jobs is None else own.max_queued_jobs
        if conn.dialect.name == "postgresql":
            conn.execute(select(func.pg_advisory_xact_lock(_LOCK, func.hashtext(project))))
            if _queued(conn, project, limit) == limit:
                raise QueueFull(project, limit)
            return
        known, free = self._free.get(project, (limit, 0))
        if free == 0 or known != limit:
            free = -(-(limit - _queued(conn, project, limit)) // 4)
            if free == 0:
                raise QueueFull(project, limit)
            if len(self._free) >= _PROJECTS:
                self._free.clear()
        self._free[project] = (limit, free - 1)


def _queued(conn: Connection, project: str, limit: int) -> int:
    """Jobs in the queue, counted only as far as the limit."""
    queued = select(JOBS.c.uid).where(JOBS.c.project == project, JOBS.c.state == JobState.QUEUED).limit(limit)
    return conn.execute(select(func.count()).select_from(queued.subquery())).scalar_one()
