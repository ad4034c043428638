"""Jobs of a project whose results a sweep takes in place of running the same job again."""

from __future__ import annotations

from sqlalchemy import Connection, select

import mvprune
from mvprune.v1 import job_pb2
from mvprune_service.db import lifecycle, records, teachers
from mvprune_service.db.models import JOBS
from mvprune_service.db.rows import JobRow
from mvprune_service.db.statements import fetch_all
from mvprune_service.domain.machine import JobState
from mvprune_service.ids import ArtifactName

_LOOKED_AT = 200  # jobs, the newest first


def reusable(conn: Connection, project: str, spec: job_pb2.CompressionSpec, since_us: int) -> JobRow | None:
    """A job that has SUCCEEDED with this spec, with an artifact of this version, created after `since_us`, when the
    newest of its input files was modified; None if there is none."""
    wanted = lifecycle.canonical(spec)
    found = select(JOBS).where(
        JOBS.c.project == project,
        JOBS.c.task == spec.task,
        JOBS.c.model == spec.model,
        JOBS.c.method == (spec.WhichOneof("method") or ""),
        JOBS.c.state == JobState.SUCCEEDED,
        JOBS.c.create_us > since_us,
    )
    for job in fetch_all(conn, JobRow, found.order_by(JOBS.c.create_us.desc()).limit(_LOOKED_AT)):
        if _as_submitted(conn, job) == wanted and _is_of_this_version(conn, job):
            return job
    return None


def _as_submitted(conn: Connection, job: JobRow) -> bytes:
    """The spec of a job, with `train` in place of the name of a teacher that was created for it."""
    spec = job_pb2.CompressionSpec.FromString(job.spec)
    teacher = records.job_by_uid(conn, job.teacher_uid) if job.teacher_uid else None
    if teacher is not None and teacher.teacher_key == teachers.digest(teachers.dense_spec(spec)):
        spec.teacher.train = True
    return lifecycle.canonical(spec)


def _is_of_this_version(conn: Connection, job: JobRow) -> bool:
    name = ArtifactName(job.project, job.artifact_sha256) if job.artifact_sha256 else None
    artifact = records.artifact_named(conn, name) if name else None
    return artifact is not None and artifact.manifest.get("versions", {}).get("mvprune") == mvprune.__version__
