"""A copy of the database is put back, of every moment in the life of an attempt: no artifact is lost. On both
databases, and without a pass of garbage collection or a restart between the copy and what is newer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.copies import copy_database
from tests.unit.service.clocks import clock as clock  # nearer than the one that the other tests share
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock
from tests.unit.service.plane import Plane, artifact, claim

from mvprune_service.clock import SECOND
from mvprune_service.control.collector import GRACE_US
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.ownership import Ownership, Standing, key_of, read_marks
from mvprune_service.db import leases
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.installation import next_mark
from mvprune_service.observability.probes import Problems
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import MARKS, ArtifactCorrupt, publish, verify

STEPS_OF_A_PASS = 19
TOKEN, MARK = "the token is remembered", "the mark is written"


class Watched:
    """A store that lets something happen before and after a mark is written, and before one is deleted."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self.on: Callable[[str], None] = lambda moment: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        if key.startswith(MARKS):
            self.on(TOKEN)
        done = self._store.put(key, data, if_absent=if_absent)
        if key.startswith(MARKS):
            self.on(MARK)
        return done

    def delete(self, key: str) -> None:
        self._store.delete(key)
        if key.startswith(MARKS):
            self.on("the old mark is deleted")


class Ground:
    """A served database, its copies, and the store of all of them."""

    def __init__(self, new_database: Callable[..., str], store: BlobStore, clock: TestClock, folder: Path) -> None:
        self.new_database, self.clock, self.folder = new_database, clock, folder
        self.store = Watched(store)
        self.url = new_database()
        self.db = Database(self.url, clock)
        self.jobs = Jobs(self.db)
        self.plane = Plane(self.db, ScriptedExecutor(), self.store, clock)
        self.copies: dict[str, str] = {}
        self.published: set[str] = set()

    def copy(self, moment: str) -> None:
        url = self.new_database()
        copy_database(self.url, url)
        self.copies[moment] = url

    async def run(self, name: str, at: Callable[[str], None] = lambda moment: None) -> None:
        """Runs a job up to its artifact; `at` is called between any two steps."""
        self.store.on = at
        at("before the job")
        await self.jobs.create(name)
        at("it is queued")
        await self.plane.scheduler.step()
        at("it has an attempt")
        await self.plane.dispatcher.step()
        at("it is submitted")
        fence = await claim(self.plane, self.jobs, name)
        at("it runs")
        uid = (await self.jobs.live(name)).attempt.uid
        sha256 = await asyncio.to_thread(self.upload, name, uid, at)
        self.published.add(sha256)
        at("the result is committed")
        await self.db.write(leases.offer, fence, sha256, actor="worker")
        at("the result is offered")
        await self.plane.finalizer.step()
        at("it is published")
        assert (await self.jobs.get(name)).state == "SUCCEEDED"
        self.store.on = lambda moment: None

    def upload(self, name: str, uid: str, at: Callable[[str], None]) -> str:
        folder = artifact(self.folder / name)
        manifest = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(manifest.replace("0.9", f"0.{len(self.published) + 1}"))
        return publish(self.store, folder, uid, confirm=lambda: at("the result is sent"))

    async def standing(self, url: str) -> Standing:
        """How the store's marks relate to a copy."""
        with closing(Database(url, self.clock)) as db:
            return (await Ownership(db, self.store).look()).standing

    async def served(self, url: str) -> set[str]:
        """Serves from a copy, with a copy of the store, until all jobs have ended. Then all garbage is old, and is
        collected. Returns the artifacts that are whole afterwards."""
        folder = self.folder / f"store{len(list(self.folder.iterdir()))}"
        shutil.copytree(self.folder / "store", folder)
        store, clock = open_store(folder.as_uri()), TestClock(self.clock.now)
        with closing(Database(url, clock)) as db:
            plane = Plane(db, ScriptedExecutor(), store, clock)
            for _ in range(2):
                await plane.watch_until_reported()
                await plane.finalizer.step()
            clock.pass_seconds(2 * GRACE_US / SECOND)
            days: Any = {"request_days": 7, "checkpoint_days": 7, "upload_days": 7, "quarantine_days": 0}
            janitor = Janitor(db, plane.executor, store, Problems(), server="copy", clock=clock, **days)
            for _ in range(STEPS_OF_A_PASS):
                await janitor.step()
        return {sha256 for sha256 in self.published if is_whole(store, sha256)}


def is_whole(store: BlobStore, sha256: str) -> bool:
    try:
        verify(store, sha256)
    except ArtifactCorrupt:
        return False
    return True


@pytest.fixture
async def ground(
    new_database: Callable[..., str], store: BlobStore, clock: TestClock, tmp_path: Path
) -> AsyncIterator[Ground]:
    made = Ground(new_database, store, clock, tmp_path)
    await Ownership(made.db, store).check()
    yield made
    made.db.close()


@pytest.mark.slow
async def test_a_copy_of_any_moment_finds_the_result_or_is_refused(ground: Ground) -> None:
    await ground.run("first")
    await ground.run("second", ground.copy)
    moments = list(ground.copies)
    assert moments[:5] == ["before the job", "it is queued", "it has an attempt", TOKEN, MARK]
    standings = {moment: await ground.standing(url) for moment, url in ground.copies.items()}
    assert [moment for moment in moments if standings[moment] is Standing.NEWER] == moments[:3]
    assert {standings[moment] for moment in moments[3:]} == {Standing.OURS}
    for moment in (TOKEN, "it is submitted", "it runs", "the result is offered", "it is published"):
        assert await ground.served(ground.copies[moment]) == ground.published, moment
    await ground.run("third")
    assert {await ground.standing(url) for url in ground.copies.values()} <= {Standing.NEWER, Standing.COPY}


@pytest.mark.parametrize("moment", [TOKEN, MARK])
async def test_a_crash_while_a_mark_is_written_leaves_an_owner(ground: Ground, moment: str) -> None:
    await ground.run("first")

    def crash(now: str) -> None:
        if now == moment:
            raise StoreUnavailable("a crash")

    ground.store.on = crash
    await ground.jobs.create("second")
    await ground.plane.dispatch()
    assert not ground.plane.executor.launches.keys() & {(await ground.jobs.live("second")).attempt.executor_ref}
    assert await ground.standing(ground.url) is Standing.OURS
    ground.store.on = lambda now: None
    await ground.plane.dispatcher.step()
    assert (await ground.jobs.live("second")).attempt.state == "SUBMITTED"
    assert len(read_marks(ground.store)) == 1


async def test_a_server_that_is_slow_to_write_its_mark_lets_no_older_copy_pass(ground: Ground) -> None:
    """Another server has drawn a token and stops. A copy is made, which knows the token; a job is run; the other server
    goes on, and its mark comes last."""
    mark, _ = await ground.db.write(next_mark)
    ground.copy("with the token")
    await ground.run("first")
    ground.store.put(key_of(mark), b"")
    assert await ground.standing(ground.url) is Standing.OURS
    assert await ground.standing(ground.copies["with the token"]) is Standing.COPY
    await ground.run("second")
    assert len(read_marks(ground.store)) == 1


async def test_what_a_copy_stores_is_not_garbage_of_the_original(ground: Ground) -> None:
    """A copy is served by mistake, its jobs succeed, and then the right database comes back."""
    ground.copy("for a trial")
    await ground.run("first")
    original = ground.db, ground.jobs, ground.plane
    ground.db = Database(ground.copies["for a trial"], ground.clock)
    ground.jobs, ground.plane = Jobs(ground.db), Plane(ground.db, ScriptedExecutor(), ground.store, ground.clock)
    await ground.run("other")
    ground.db.close()
    ground.db, ground.jobs, ground.plane = original
    assert await ground.standing(ground.url) is Standing.COPY
    assert await ground.served(ground.url) == ground.published
    await Ownership(ground.db, ground.store).adopt(await Ownership(ground.db, ground.store).look())
    assert await ground.standing(ground.url) is Standing.OURS
    assert await ground.standing(ground.copies["for a trial"]) is Standing.NEWER


async def test_marks_that_are_asked_for_at_once_are_one(ground: Ground) -> None:
    ownership, written = Ownership(ground.db, ground.store), list[str]()
    ground.store.on = written.append
    await asyncio.gather(*(ownership.cover() for _ in range(20)))
    assert written.count(MARK) <= 2
    assert len(read_marks(ground.store)) == 1


async def test_no_attempt_starts_while_the_store_is_away(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    def away(now: str) -> None:
        raise StoreUnavailable("no answer")

    ground.store.on = away
    await ground.jobs.create("a")
    await ground.plane.dispatch()
    assert ground.plane.executor.launches == {}
    assert "waiting for the store with 1 attempt: no answer" in caplog.text
    ground.clock.pass_seconds(61)
    await ground.plane.watch_until_reported()
    job = await ground.jobs.get("a")
    assert (job.state, job.attempts_left) == ("QUEUED", 2), "an attempt that no executor had does not count"
