"""Which jobs and sweeps use uploads. What is used is not deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import Connection, func, insert, select, update

from mvprune.sources.uploads import is_upload, parse
from mvprune.v1 import job_pb2
from mvprune_service.db.engine.database import Tx
from mvprune_service.db.engine.statements import fetch_all
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.jobs import JOBS, JobRow
from mvprune_service.db.tables.sweeps import SWEEPS
from mvprune_service.db.tables.uploads import JOB_UPLOADS, SWEEP_UPLOADS, UPLOADS, UploadRow
from mvprune_service.domain.uploading import references
from mvprune_service.ids import JobName, SweepName, UploadName

USES = (JOB_UPLOADS, SWEEP_UPLOADS)
_NAMED = 5  # jobs, and as many sweeps


class NoUpload(Exception):
    """A job refers to an upload that is not there, or not complete.

    Attributes:
        reference: to it.
    """

    def __init__(self, reference: str) -> None:
        super().__init__(
            f"must be an upload of this project that is complete, got {reference!r}; the client sends it: "
            "mvpctl upload create PATH"
        )
        self.reference = reference


def use_in_job(tx: Tx, job_uid: str, project: str, references: Iterable[str]) -> None:
    """Keeps uploads until the job is deleted. Raises NoUpload."""
    rows = [{"job_uid": job_uid, "project": project, "digest": one} for one in _held(tx, project, references)]
    if rows:
        tx.conn.execute(insert(JOB_UPLOADS), rows)


def use_in_sweep(tx: Tx, sweep_uid: str, project: str, references: Iterable[str]) -> None:
    """Keeps uploads until the sweep is deleted, beside those that it keeps already. Raises NoUpload."""
    held = _held(tx, project, references)
    known = set(tx.conn.execute(select(SWEEP_UPLOADS.c.digest).where(SWEEP_UPLOADS.c.sweep_uid == sweep_uid)).scalars())
    rows = [{"sweep_uid": sweep_uid, "project": project, "digest": one} for one in held if one not in known]
    if rows:
        tx.conn.execute(insert(SWEEP_UPLOADS), rows)


def count_users(conn: Connection, name: UploadName) -> int:
    """How many jobs and sweeps use an upload."""
    counts = (
        select(func.count()).select_from(table).where(table.c.project == name.project, table.c.digest == name.digest)
        for table in USES
    )
    return sum(conn.execute(count).scalar_one() for count in counts)


def names_of_users(conn: Connection, name: UploadName) -> Iterator[str]:
    """Some of the jobs and sweeps that use an upload."""
    jobs = select(JOBS.c.job_id).join(JOB_UPLOADS, JOB_UPLOADS.c.job_uid == JOBS.c.uid)
    is_it = (JOB_UPLOADS.c.project == name.project, JOB_UPLOADS.c.digest == name.digest)
    for job in conn.execute(jobs.where(*is_it).limit(_NAMED)).scalars():
        yield str(JobName(name.project, job))
    sweeps = select(SWEEPS.c.sweep_id).join(SWEEP_UPLOADS, SWEEP_UPLOADS.c.sweep_uid == SWEEPS.c.uid)
    is_it = (SWEEP_UPLOADS.c.project == name.project, SWEEP_UPLOADS.c.digest == name.digest)
    for sweep in conn.execute(sweeps.where(*is_it).limit(_NAMED)).scalars():
        yield str(SweepName(name.project, sweep))


def inputs_of(conn: Connection, job: JobRow) -> dict[str, UploadRow]:
    """The uploads that an attempt of a job reads, by the references to them: those of its spec, and the base model of
    its teacher's artifact."""
    wanted = set(references(job_pb2.CompressionSpec.FromString(job.spec)).values())
    if job.teacher_sha256 is not None:
        taught = (ARTIFACTS.c.project == job.project, ARTIFACTS.c.sha256 == job.teacher_sha256)
        manifest = conn.execute(select(ARTIFACTS.c.manifest).where(*taught)).scalar() or {}
        base = manifest.get("model", {}).get("name", "")
        wanted |= {base} if is_upload(base) else set()
    if not wanted:
        return {}
    same = (UPLOADS.c.project == JOB_UPLOADS.c.project) & (UPLOADS.c.digest == JOB_UPLOADS.c.digest)
    rows = fetch_all(conn, UploadRow, select(UPLOADS).join(JOB_UPLOADS, same).where(JOB_UPLOADS.c.job_uid == job.uid))
    by_digest = {row.digest: row for row in rows}
    digests = {reference: parse(reference).digest for reference in sorted(wanted)}
    return {reference: by_digest[digest] for reference, digest in digests.items() if digest in by_digest}


def _held(tx: Tx, project: str, references: Iterable[str]) -> list[str]:
    """The digests of uploads, which nobody deletes before the transaction ends."""
    by_digest = {parse(reference).digest: reference for reference in references}
    for digest, reference in sorted(
        by_digest.items()
    ):  # in this order, so that no two transactions wait for each other
        is_it = (UPLOADS.c.project == project, UPLOADS.c.digest == digest, UPLOADS.c.ready_us.is_not(None))
        if tx.conn.execute(update(UPLOADS).where(*is_it).values(used_us=tx.now)).rowcount != 1:
            raise NoUpload(reference)
    return list(by_digest)
