"""What a token shows that is for one job."""

from __future__ import annotations

from sqlalchemy import insert, update
from tests.unit.service.conftest import Jobs
from tests.unit.service.db.sample_rows import sample

from mvprune_service.db import shown
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.sweeps import POINTS, SWEEPS
from mvprune_service.ids import JobName, SweepName

SHARED = JobName("p", "a")
ARTIFACT = f"projects/p/artifacts/{64 * 'a'}"


def publish(tx: Tx, job: str) -> None:
    tx.conn.execute(update(JOBS).where(JOBS.c.job_id == job).values(artifact_sha256=64 * "a"))


async def test_a_job_shows_itself_its_attempts_and_its_artifact(db: Database, jobs: Jobs) -> None:
    await jobs.create("a")
    await jobs.create("b")
    now = (await jobs.get("a")).create_us

    async def shows(wanted: str, since_us: int = now) -> bool:
        return await db.read(shown.shows, SHARED, since_us, wanted)

    assert await shows("projects/p/jobs/a")
    assert await shows("projects/p/jobs/a/attempts/-")
    assert await shows("projects/p/jobs/a/attempts/3")
    for other in ("projects/p/jobs/b", "projects/q/jobs/a", "projects/p", "projects/p/sweeps/a", "jobs/a", ""):
        assert not await shows(other)
    assert not await shows(ARTIFACT)
    await db.write(publish, "a")
    assert await shows(ARTIFACT)
    assert not await shows(ARTIFACT.replace("aa", "ab"))
    # The token is older than the job: it was made for another one of this name.
    assert not await shows("projects/p/jobs/a", now - 1)
    assert await db.read(shown.is_there, SHARED)
    assert not await db.read(shown.is_there, JobName("p", "c"))


async def test_a_sweep_shows_its_jobs_and_those_that_it_reuses(db: Database, jobs: Jobs) -> None:
    for job in "abc":
        await jobs.create(job)
    reused = (await jobs.get("b")).uid

    def add(tx: Tx) -> None:
        tx.conn.execute(insert(SWEEPS).values(sample()["sweeps"][0]))
        tx.conn.execute(insert(POINTS).values(sample()["sweep_points"][2] | {"job_uid": reused}))
        tx.conn.execute(update(JOBS).where(JOBS.c.job_id == "a").values(sweep_id="s"))
        publish(tx, "b")

    await db.write(add)

    async def shows(wanted: str, since_us: int = 1) -> bool:
        return await db.read(shown.shows, SweepName("p", "s"), since_us, wanted)

    for its in ("projects/p/sweeps/s", "projects/p/jobs/a", "projects/p/jobs/b", ARTIFACT):
        assert await shows(its), its
        assert not await shows(its, since_us=0), "the token is older than the sweep"
    for other in ("projects/p/sweeps/e", "projects/p/jobs/c", "projects/p"):
        assert not await shows(other), other
