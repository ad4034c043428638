"""The control loops over one database, to be stepped by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.unit.service.beating import steady

from mvprune_service.clock import SECOND
from mvprune_service.control.dispatcher import Dispatcher
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.ownership import Ownership
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.db import leases
from mvprune_service.db.engine.database import Database
from mvprune_service.db.leases import Fence
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore

if TYPE_CHECKING:
    from .conftest import Jobs, ScriptedExecutor, TestClock

KEY = b"k" * 32
PYTHON = "/opt/mvprune/bin/python"
LEASE = 15.0


class Plane:
    """All loops over one database."""

    def __init__(self, db: Database, executor: ScriptedExecutor, store: BlobStore, clock: TestClock) -> None:
        self.db, self.executor, self.store, self.clock = db, executor, store, clock
        self.scheduler = Scheduler(db, executor, clock=clock)
        self.dispatcher = Dispatcher(
            db, executor, Ownership(db, store), KEY, {"MVPRUNE_STORE": store.url}, python=PYTHON
        )
        self.problems = Problems(clock)
        self.restart()
        self.finalizer = Finalizer(db, store)
        clock.pass_seconds(LEASE + 1)  # amnesty is over

    def restart(self) -> None:
        self.watchdog = Watchdog(
            self.db,
            self.executor,
            self.store,
            pace=steady(self.db, LEASE),
            problems=self.problems,
            clock=self.clock,
        )

    async def dispatch(self) -> None:
        await self.scheduler.step()
        await self.dispatcher.step()

    async def watch_until_reported(self) -> None:
        """Looks twice, with the time that a late report is given between."""
        await self.watchdog.step()
        self.clock.pass_seconds(6)
        await self.watchdog.step()


async def claim(plane: Plane, jobs: Jobs, job_id: str = "a") -> Fence:
    live = await jobs.live(job_id)
    fence = Fence(live.name, live.attempt.fencing_token)
    await plane.db.write(leases.claim, fence, runner_id="r", node="n", lease_us=int(LEASE * SECOND))
    return fence


def artifact(folder: Path) -> Path:
    folder.mkdir()
    (folder / "weights").write_bytes(b"w" * 100)
    manifest = {
        "files": [
            {
                "path": "weights",
                "size_bytes": 100,
                "sha256": hashlib.sha256(b"w" * 100).hexdigest(),
                "media_type": "application/octet-stream",
            }
        ],
        "metrics": {"eval/accuracy": 0.9},
        "primary_metric": "accuracy",
        "accounting": {},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder
