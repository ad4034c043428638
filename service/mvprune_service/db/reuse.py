"""Jobs of a project whose results a sweep takes in place of running the same job again."""

from __future__ import annotations

from sqlalchemy import Connection, select

import mvprune
from mvprune.v1 import job_pb2
from mvprune_service.db import lifecycle, records, teachers
from mvprune_service.db.engine.statements import fetch_all
from mvprune_service.db.tables.jobs import JOBS, JobRow
from mvprune_service.domain.machine import JobState
from mvprune_service.domain.teaching import dense_spec
from mvprune_service.ids import ArtifactName

_LOOKED_AT = 200  # jobs, the newest first


def reusable(conn: Connection, project: str, spec: job_pb2.CompressionSpec, since_us: int) -> JobRow | None:
    """A job that has SUCCEEDED with this spec, with an artifact of this version, created after `since_us`, when the
    newest of its input files was modified; None if there is none."""
    found = select(JOBS).where(
        JOBS.c.project == project,
        JOBS.c.task == spec.task,
        JOBS.c.model == spec.model,
        JOBS.c.method == (spec.WhichOneof("method") or ""),
        JOBS.c.state == JobState.SUCCEEDED,
        JOBS.c.create_us > since_us,
    )
    wanted = _without_jobs(lifecycle.canonical(spec))
    for job in fetch_all(conn, JobRow, found.order_by(JOBS.c.create_us.desc()).limit(_LOOKED_AT)):
        if _without_jobs(job.spec) != wanted:
            continue
        if job.spec == _with_job(conn, spec, job.teacher_uid) and _is_of_this_version(conn, job):
            return job
    return None


def _without_jobs(stored: bytes) -> bytes:
    """A stored spec without the sources of its teacher and its baseline."""
    spec = job_pb2.CompressionSpec.FromString(stored)
    for field in ("model", "job", "train", "none"):
        spec.teacher.ClearField(field)
    spec.teacher.SetInParent()
    spec.ClearField("baseline")
    return lifecycle.canonical(spec)


def _with_job(conn: Connection, spec: job_pb2.CompressionSpec, teacher_uid: str | None) -> bytes:
    """A spec as it is stored with a dense job, if it shares that one."""
    job = records.job_by_uid(conn, teacher_uid) if teacher_uid and teachers.trains(spec) else None
    if job is not None and job.teacher_key == teachers.digest(dense_spec(spec)):
        spec = teachers.name_job(spec, job)
    return lifecycle.canonical(spec)


def _is_of_this_version(conn: Connection, job: JobRow) -> bool:
    name = ArtifactName(job.project, job.artifact_sha256) if job.artifact_sha256 else None
    artifact = records.artifact_named(conn, name) if name else None
    return artifact is not None and artifact.manifest.get("versions", {}).get("mvprune") == mvprune.__version__
