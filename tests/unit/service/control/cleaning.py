"""A janitor, and rows for what it may take away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, func, insert, select, update
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock

from mvprune_service.control.janitor import Janitor
from mvprune_service.control.ownership import Ownership
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.checkpoints import put_checkpoint

DAY = 24 * 3600


@pytest.fixture
async def janitor(db: Database, executor: ScriptedExecutor, store: BlobStore, clock: TestClock) -> Janitor:
    await Ownership(db, store).check()  # marks the store before it is used, as the first step of a server does
    return start(db, executor, store, clock)


def start(
    db: Database, executor: ScriptedExecutor, store: BlobStore, clock: TestClock, server: str = "a", days: float = 0
) -> Janitor:
    """A janitor; `days` is how long garbage stays in quarantine."""
    return Janitor(
        db,
        executor,
        store,
        Problems(),
        server=server,
        request_days=7,
        checkpoint_days=7,
        upload_days=7,
        quarantine_days=days,
        clock=clock,
    )


class Rows:
    """Puts rows where a test wants them."""

    def __init__(self, db: Database, jobs: Jobs) -> None:
        self.db, self.jobs = db, jobs

    async def job(self, job_id: str, state: str = "RUNNING", **values: Any) -> str:
        uid = await self.jobs.create(job_id)
        ended = state in ("SUCCEEDED", "FAILED", "CANCELLED")
        await self.set(JOBS, uid, state=state, **{"end_us": self.db._clock() if ended else None, **values})
        return uid

    async def attempt(self, job_uid: str, uid: str, state: str = "RUNNING", **values: Any) -> str:
        live = state in ("CREATED", "SUBMITTED", "RUNNING")
        row = {
            "uid": uid,
            "job_uid": job_uid,
            "number": 1,
            "state": state,
            "fencing_token": 1,
            "executor": "scripted",
            "executor_ref": f"mvprune-{uid}",
            "cpus": 1.0,
            "gpus": 0.0,
            "memory_bytes": 0,
            "node": "",
            "log_bytes": 0,
            "create_us": self.db._clock(),
            "start_deadline_us": 0,
            "end_us": None if live else self.db._clock(),
            **values,
        }
        await self.add(ATTEMPTS, **row)
        return uid

    async def add(self, table: Table[Any], *more: dict[str, Any], **values: Any) -> None:
        def work(tx: Tx) -> None:
            tx.conn.execute(insert(table), [values, *more] if values else more)

        await self.db.write(work)

    async def set(self, table: Any, uid: str, **values: Any) -> None:
        def work(tx: Tx) -> None:
            tx.conn.execute(update(table).where(table.c.uid == uid).values(**values))

        await self.db.write(work)

    async def count(self, table: Table[Any]) -> int:
        return await self.db.read(lambda conn: conn.execute(select(func.count()).select_from(table)).scalar_one())

    async def artifact(self, sha256: str, manifest: dict[str, Any], **values: Any) -> None:
        known = {"attempt": 1, "manifest_bytes": 1, "create_us": 1, **values}
        await self.add(ARTIFACTS, project="p", sha256=sha256, manifest=manifest, **known)

    async def artifacts(self) -> list[str]:
        return list(await self.db.read(lambda conn: conn.execute(select(ARTIFACTS.c.sha256)).scalars().all()))

    async def checkpoints(self, job_uid: str, attempt_uid: str, store: BlobStore, folder: Path, *steps: int) -> None:
        for step in steps:
            sha256 = put_checkpoint(store, folder, attempt_uid, step)
            await self.add(
                CHECKPOINTS,
                attempt_uid=attempt_uid,
                step=step,
                job_uid=job_uid,
                manifest_sha256=sha256,
                create_us=self.db._clock(),
            )


@pytest.fixture
def rows(db: Database, jobs: Jobs) -> Rows:
    return Rows(db, jobs)
