"""Jobs that are created and finished, as by a server with quick workers, while a test does something else."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.service.conftest import Jobs, ScriptedExecutor
from tests.waiting import until

from mvprune.v1 import job_pb2
from mvprune_service.clock import SECOND
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.db import leases
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.opening import prepare
from mvprune_service.db.leases import Fence
from mvprune_service.executors.base import Capacity, Node
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.checkpoints import put_checkpoint
from mvprune_service.stores.layout import publish

_CPUS = 100_000.0  # of a job: no real machine starts one


class Load:
    """The database, the loops of a server, and the store. `finished` has the weights of the SUCCEEDED jobs."""

    def __init__(self, url: str, store: BlobStore, folder: Path) -> None:
        self.db = Database(url)
        prepare(self.db, migrate=False)
        self.finished: dict[str, bytes] = {}
        self._failed: list[BaseException] = []
        self._jobs = Jobs(self.db)
        self._store = store
        self._folder = folder
        executor = ScriptedExecutor()
        executor.room = Capacity((Node(10 * _CPUS, 0, 8 << 30),))
        self._scheduler = Scheduler(self.db, executor)
        self._finalizer = Finalizer(self.db, store)
        days = {"request_days": 7, "checkpoint_days": 7, "quarantine_days": 0, "upload_days": 1}
        self._janitor = Janitor(self.db, executor, store, Problems(), server="a", **days)  # type: ignore[arg-type]

    async def start(self, job_id: str, checkpoint: bytes = b"half") -> Fence:
        """A RUNNING job with a checkpoint at step 1."""
        policy = job_pb2.ExecutionPolicy(resources={"cpus": _CPUS})  # type: ignore[arg-type]
        await self._jobs.create(job_id, policy=policy)
        await self._scheduler.step()
        live = await self._jobs.live(job_id)
        fence = Fence(live.name, live.attempt.fencing_token)
        await self.db.write(leases.claim, fence, runner_id="r", node="n", lease_us=15 * SECOND)
        folder = self._folder / f"{job_id}-checkpoint"
        folder.mkdir(parents=True)
        (folder / "state").write_bytes(checkpoint)
        sha256 = await asyncio.to_thread(put_checkpoint, self._store, folder, live.attempt.uid, 1)
        await self.db.write(leases.commit_checkpoint, fence, step=1, manifest_sha256=sha256)
        return fence

    async def upload(self, fence: Fence) -> str:
        """Uploads a result, and its marker; returns the manifest's SHA-256."""
        job_id = fence.attempt.job
        live = await self._jobs.live(job_id)
        folder = self._folder / job_id
        folder.mkdir(parents=True)
        files = []
        for name, content in (("weights", os.urandom(2000)), ("config.json", b"{}")):
            (folder / name).write_bytes(content)
            sha256 = hashlib.sha256(content).hexdigest()
            files.append({"path": name, "size_bytes": len(content), "sha256": sha256, "media_type": "x"})
        manifest = {"files": files, "metrics": {"eval/accuracy": 0.9}, "primary_metric": "accuracy", "accounting": {}}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return await asyncio.to_thread(publish, self._store, folder, live.attempt.uid)

    async def finish(self, fence: Fence) -> None:
        """RUNNING → SUCCEEDED."""
        await self.db.write(leases.offer, fence, await self.upload(fence), actor="worker")
        await self._finalizer.step()
        job_id = fence.attempt.job
        assert (await self._jobs.get(job_id)).state == "SUCCEEDED"
        self.finished[job_id] = (self._folder / job_id / "weights").read_bytes()

    async def collect(self) -> None:
        """One step of the janitor, which deletes the checkpoints of SUCCEEDED jobs."""
        await self._janitor.step()

    def wait_until_finished(self, count: int) -> None:
        """Returns when so many jobs have SUCCEEDED."""
        until(lambda: len(self.finished) >= count or self._failed, lambda: sorted(self.finished))
        assert self._failed == []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Starts and finishes jobs on another thread, two at a time, until the block ends."""
        ended = threading.Event()

        async def go_on() -> None:
            number = 0
            await self.collect()  # marks the new store
            while not ended.is_set():
                fences = [await self.start(f"j{number + more}") for more in range(2)]
                number += 2
                for fence in fences:
                    await self.finish(fence)
                await self.collect()

        def run() -> None:
            try:
                asyncio.run(go_on())
            except BaseException as error:
                self._failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        assert self._failed == []
