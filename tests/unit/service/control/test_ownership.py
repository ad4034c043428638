"""Whose the store is, how long garbage stays in it, and that another database deletes nothing: on both databases."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, make_url, select, update
from tests.unit.service.clocks import clock as clock  # nearer than the one that the other tests share
from tests.unit.service.conftest import ScriptedExecutor, TestClock

from mvprune_service.clock import SECOND, system_clock
from mvprune_service.control import collector
from mvprune_service.control.collector import GRACE_US
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.ownership import Look, Ownership, Standing, key_of, read_marks
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.installation import Mark, installation
from mvprune_service.db.quarantine import Quarantined, quarantined
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.server import INSTALLATION, QUARANTINE
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import MARKS, blob_key, manifest_key, marker_key

DAY = 24 * 3600
STEPS_OF_A_PASS = 19
OLD = blob_key("ab" * 32), manifest_key("cd" * 32), marker_key("nobody")


class Keeper:
    """A database, and its janitor on a store."""

    def __init__(self, db: Database, store: BlobStore, clock: TestClock, days: float = 7) -> None:
        self.db, self.store, self.clock = db, store, clock
        self.problems = Problems()
        self.days = days
        self.restart()

    def restart(self) -> None:
        self.janitor = Janitor(
            self.db,
            ScriptedExecutor(),
            self.store,
            self.problems,
            server="a",
            request_days=7,
            checkpoint_days=7,
            upload_days=7,
            quarantine_days=self.days,
            clock=self.clock,
        )

    async def collect(self, days: float = 0.25) -> None:
        """A whole pass over the store, after some days."""
        self.clock.pass_seconds(days * DAY)
        for _ in range(STEPS_OF_A_PASS):
            with suppress(StoreUnavailable):  # as in a round of the janitor
                await self.janitor._clean_store()

    async def look(self) -> Look:
        return await Ownership(self.db, self.store).look()

    async def quarantined(self) -> set[str]:
        return set(await self.db.read(lambda conn: conn.execute(select(QUARANTINE.c.key)).scalars().all()))


@pytest.fixture
async def keep(new_database: Callable[..., str], store: BlobStore, clock: TestClock) -> AsyncIterator[Any]:
    """Makes keepers of new databases, all with the same store unless told otherwise."""
    async with AsyncExitStack() as stack:

        async def make(url: str = "", other: BlobStore | None = None, **given: Any) -> Keeper:
            db = Database(url or new_database(), clock)
            stack.callback(db.close)
            if not url:  # it is a copy: another database has another identity
                with db.engine.begin() as conn:
                    conn.execute(update(INSTALLATION).values(uid=secrets.token_hex(16)))
            return Keeper(db, other or store, clock, **given)

        yield make


def keys(store: BlobStore) -> set[str]:
    return {entry.key for entry in store.list("")} - set(map(key_of, read_marks(store)))


def fill(store: BlobStore) -> None:
    for key in OLD:
        store.put(key, b"content")


async def test_a_new_store_is_marked_and_stays_ours(keep: Any, store: BlobStore) -> None:
    ours = await keep()
    assert (await ours.look()).standing is Standing.NEW
    await ours.collect()
    (first,) = read_marks(store)
    await ours.collect()
    (second,) = read_marks(store)
    assert (await ours.look()).standing is Standing.OURS
    own = await ours.db.read(installation)
    assert first.database == second.database == own.uid
    assert first.token != second.token == own.tokens[-1]
    assert first.generation < second.generation == own.generation
    assert ours.problems.texts() == {}


async def test_an_empty_database_deletes_nothing_and_says_why(
    keep: Any, store: BlobStore, caplog: pytest.LogCaptureFixture
) -> None:
    ours = await keep()
    await ours.collect()
    fill(store)
    theirs = await keep(days=0)
    before = keys(store)
    for _ in range(3):
        await theirs.collect(30)
    assert keys(store) == before
    uids = [(await each.db.read(installation)).uid[:8] for each in (ours, theirs)]
    told = theirs.problems.texts()["garbage collection"]
    assert f"the store belongs to database {uids[0]}, this is {uids[1]}; `mvpctl server adopt-store`" in told
    assert len([record for record in caplog.records if "adopt-store" in record.message]) == 1, "it is logged once"


@pytest.mark.parametrize(
    ("mark", "standing"),
    [
        ("v2-of-a-later-version", Standing.UNKNOWN),
        ("12.database.token", Standing.UNKNOWN),
        (f"{1:020}..token", Standing.UNKNOWN),
        (f"{1:020}.database.token.more", Standing.UNKNOWN),
        (None, Standing.UNMARKED),
    ],
)
async def test_a_mark_that_says_nothing_protects_what_is_there(
    keep: Any, store: BlobStore, mark: str | None, standing: Standing
) -> None:
    fill(store)
    if mark is not None:
        store.put(MARKS + mark, b"")
    ours = await keep(days=0)
    before = keys(store)
    await ours.collect(30)
    await ours.collect(30)
    assert (await ours.look()).standing is standing
    assert keys(store) == before
    assert "adopt-store" in ours.problems.texts()["garbage collection"]
    await Ownership(ours.db, store).adopt(await ours.look())
    await ours.collect()
    assert (await ours.look()).standing is Standing.OURS
    assert ours.problems.texts() == {}
    assert keys(store) == set(), "with a delay of 0 garbage goes at once"


async def test_garbage_waits_for_the_delay(
    keep: Any, store: BlobStore, clock: TestClock, caplog: pytest.LogCaptureFixture
) -> None:
    ours = await keep(days=3)
    await ours.collect()
    fill(store)
    await ours.collect()
    assert await ours.quarantined() == set(), "all of it is young"
    await ours.collect(GRACE_US / SECOND / DAY)
    assert await ours.quarantined() == set(OLD)
    (warning,) = [record for record in caplog.records if "went into quarantine" in record.message]
    assert "1 artifacts, and 3 objects (21 B) in all, went into quarantine: no job refers to them" in warning.message
    assert "are deleted in 3 days" in warning.message
    found = await ours.db.read(quarantined)
    assert (found.objects, found.size_bytes, found.artifacts) == (3, 21, 1)
    assert 0 < clock.now - (found.since_us or 0) < 60 * SECOND
    ours.restart()
    await ours.collect(2.9)
    assert keys(store) == set(OLD)
    caplog.clear()
    await ours.collect(0.3)
    assert keys(store) == set()
    removed = [record for record in caplog.records if "1 of them artifacts" in record.message]
    assert [record.levelname for record in removed] == ["WARNING"]
    await ours.collect()
    assert await ours.db.read(quarantined) == Quarantined(0, 0, 0, None)


async def test_an_upload_starts_the_delay_anew(keep: Any, store: BlobStore, tmp_path: Path, clock: TestClock) -> None:
    ours = await keep(days=3)
    await ours.collect()
    fill(store)
    await ours.collect(2)
    key, *_ = OLD
    later = tmp_path / "store" / key
    then = (system_clock() + SECOND) / SECOND
    os.utime(later, (then, then))
    await ours.collect(3.1)
    assert keys(store) == {key}
    await ours.collect(2.5)
    assert keys(store) == {key}
    await ours.collect(1)
    assert keys(store) == set()


async def test_what_is_referred_to_again_leaves_the_quarantine(keep: Any, store: BlobStore) -> None:
    ours = await keep(days=3)
    await ours.collect()
    fill(store)
    await ours.collect(2)
    row = {"project": "p", "attempt": 1, "manifest_bytes": 1, "create_us": 1}
    manifest = {"files": [{"sha256": "ab" * 32}]}

    def work(tx: Tx) -> None:
        tx.conn.execute(insert(ARTIFACTS).values(**row, sha256="cd" * 32, manifest=manifest))

    await ours.db.write(work)
    await ours.collect(10)
    assert keys(store) == set(OLD[:2])
    assert await ours.quarantined() <= {OLD[2]}


@pytest.mark.slow
async def test_many_objects_are_noted_and_deleted_in_batches(
    keep: Any, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_PAGE", 3), ("_NOTES", 7), ("_BATCH", 5)):
        monkeypatch.setattr(collector, name, value)
    ours = await keep(days=1)
    await ours.collect()
    for number in range(20):
        store.put(blob_key(f"{number:064x}"), b"x")
        store.put(marker_key(f"gone{number}"), b"x")
    await ours.collect(2)
    for _ in range(2):
        await ours.collect(0)
    assert len(await ours.quarantined()) == 40
    await ours.collect(2)
    for _ in range(2):
        await ours.collect(0)
    assert keys(store) == set()


def go_on(tx: Tx) -> None:
    """As a database whose commits are counted does."""
    tx.conn.execute(update(INSTALLATION).values(generation=INSTALLATION.c.generation + 99))


@asynccontextmanager
async def copied(keeper: Keeper, folder: Path) -> AsyncIterator[Keeper]:
    """A copy of an SQLite database, as a backup is."""
    with keeper.db.engine.connect() as conn:
        conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    file = folder / f"copy{system_clock()}.sqlite"
    shutil.copyfile(str(make_url(str(keeper.db.engine.url)).database), file)
    db = Database(f"sqlite:///{file}", keeper.clock)
    try:
        yield Keeper(db, keeper.store, keeper.clock, keeper.days)
    finally:
        db.close()


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_an_older_backup_and_a_copy_are_told_from_the_owner(keep: Any, store: BlobStore, tmp_path: Path) -> None:
    ours = await keep(days=0)
    await ours.collect()
    async with copied(ours, tmp_path) as backup:
        assert (await backup.look()).standing is Standing.OURS, "nothing has happened since"
        await ours.collect()
        fill(store)
        await backup.collect(30)
        assert (await backup.look()).standing is Standing.NEWER
        assert "is older than the store's mark" in backup.problems.texts()["garbage collection"]
        assert keys(store) == set(OLD)
        await Ownership(backup.db, store).adopt(await backup.look())
        assert (await backup.look()).standing is Standing.OURS
        assert (await ours.look()).standing is Standing.NEWER
        await ours.db.write(go_on)  # a generation that is greater is not enough
        assert (await ours.look()).standing is Standing.COPY
        await ours.collect(30)
        assert keys(store) == set(OLD)


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_a_backup_without_a_newer_mark_deletes_nothing_that_is_newer(
    keep: Any, store: BlobStore, tmp_path: Path
) -> None:
    """The worst moment: the backup has notes about garbage, and no mark was written since."""
    ours = await keep(days=3)
    await ours.collect()
    fill(store)
    await ours.collect(2)
    assert await ours.quarantined() == set(OLD)
    async with copied(ours, tmp_path) as backup:
        key, *_ = OLD  # an artifact that is newer than the backup has the blob, which was uploaded again
        then = (system_clock() + SECOND) / SECOND
        os.utime(tmp_path / "store" / key, (then, then))
        newer = blob_key("ef" * 32)
        store.put(newer, b"newer")
        await backup.collect(3.5)
        assert (await backup.look()).standing is Standing.OURS
        assert keys(store) == {key, newer}
        await backup.collect(2.5)
        assert keys(store) == {key, newer}, "the delay counts from when the backup was restored"


async def test_adopting_clears_the_quarantine(keep: Any, store: BlobStore) -> None:
    ours = await keep(days=3)
    await ours.collect()
    fill(store)
    await ours.collect(2)
    theirs = await keep()
    await Ownership(theirs.db, store).adopt(await theirs.look())
    await ours.collect(10)
    assert keys(store) == set(OLD)
    await Ownership(ours.db, store).adopt(await ours.look())
    await ours.collect()
    assert keys(store) == set(OLD), "old notes count for nothing"
    await ours.collect(3.5)
    assert keys(store) == set()


async def test_a_mark_that_changes_in_the_middle_ends_the_deletion(
    keep: Any, store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "_LOOK_SECONDS", 0)
    deleted: list[str] = []

    class Adopted:
        """Another database adopts the store after the first deletion."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def delete(self, key: str) -> None:
            store.delete(key)
            if key.startswith("attempts/"):
                deleted.append(key)
                store.put(key_of(Mark("them", 1, "t")), b"")

    ours = await keep(other=Adopted(), days=0)
    await ours.collect()
    for number in range(5):
        store.put(marker_key(f"gone{number}"), b"x")
    await ours.collect(2)
    assert len(deleted) == 1
    assert len(keys(store)) == 4
    assert "is also used by database them" in ours.problems.texts()["garbage collection"]


async def test_replicas_that_mark_at_once_stay_owners(keep: Any, store: BlobStore) -> None:
    ours = await keep(days=0)
    one, other = Ownership(ours.db, store), Ownership(ours.db, store)
    await asyncio.gather(one.check(), other.check())
    for _ in range(10):
        await asyncio.gather(one.cover(), other.cover())
        assert (await ours.look()).standing is Standing.OURS
    await one.cover()
    assert len(read_marks(store)) == 1, "older marks go"
