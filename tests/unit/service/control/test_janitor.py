"""What the janitor takes away, and what it must leave."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from tests.unit.service.clocks import clock as clock  # nearer than the one that the other tests share
from tests.unit.service.conftest import ScriptedExecutor, TestClock
from tests.unit.service.control.cleaning import DAY, Rows, start
from tests.unit.service.control.cleaning import janitor as janitor
from tests.unit.service.control.cleaning import rows as rows

from mvprune_service.clock import SECOND
from mvprune_service.control.collector import GRACE_US
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.ownership import Ownership
from mvprune_service.db import audit
from mvprune_service.db.engine.database import Database
from mvprune_service.db.janitor import page_of_references
from mvprune_service.db.tables.attempts import ATTEMPTS, CHECKPOINTS
from mvprune_service.db.tables.audit import AUDIT
from mvprune_service.db.tables.jobs import JOBS, REQUESTS
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import COLLECTION_KEY, blob_key, marker_key, publish, verify

STEPS_OF_A_PASS = 18


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a trainer resumes from."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "state").write_bytes(b"state")
    return folder


@pytest.fixture
def artifact(tmp_path: Path) -> Callable[..., Path]:
    def make(**files: bytes) -> Path:
        folder = tmp_path / hashlib.sha256(repr(files).encode()).hexdigest()
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        entries = [
            {"path": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ]
        (folder / "manifest.json").write_text(json.dumps({"files": entries, "metrics": {}}))
        return folder

    return make


def keys(store: BlobStore, prefix: str) -> list[str]:
    return sorted(entry.key for entry in store.list(prefix))


async def collect(janitor: Janitor, clock: TestClock) -> None:
    """A whole pass over the store."""
    clock.pass_seconds(6 * 3600)
    for _ in range(STEPS_OF_A_PASS):
        await janitor.step()


# --- rows


async def test_request_ids_are_forgotten_after_a_week(janitor: Janitor, rows: Rows, clock: TestClock) -> None:
    uid = await rows.job("a")
    request = {"project": "p", "body_sha256": "", "job_uid": uid, "create_us": clock.now}
    await rows.add(REQUESTS, *({**request, "request_id": str(n)} for n in range(600)))  # more than one batch
    clock.pass_seconds(6.9 * DAY)
    await janitor.step()
    assert await rows.count(REQUESTS) == 600
    clock.pass_seconds(0.2 * DAY)
    await janitor.step()
    assert await rows.count(REQUESTS) == 0


async def test_entries_of_the_audit_are_kept_for_a_year(janitor: Janitor, db: Database, clock: TestClock) -> None:
    entry = audit.Entry("p", "token-a", "CancelJob", "projects/p/jobs/j", "OK", "10.0.0.7", "")
    await db.write(audit.add, entry)
    clock.pass_seconds(200 * DAY)
    await db.write(audit.add, entry)
    for seconds, left in ((164 * DAY, 2), (2 * DAY, 1), (200 * DAY, 0)):
        clock.pass_seconds(seconds)
        await janitor.step()
        count = await db.read(lambda conn: conn.execute(select(func.count()).select_from(AUDIT)).scalar())
        assert count == left


async def test_expired_jobs_go_with_their_rows(janitor: Janitor, rows: Rows, clock: TestClock) -> None:
    for number in range(30):  # more than one batch
        uid = await rows.job(f"old{number}", "FAILED", expire_us=clock.now + number)
        await rows.attempt(uid, f"a{number}", "FAILED")
    await rows.job("young", "FAILED", expire_us=clock.now + DAY * SECOND)
    await rows.job("live", "RUNNING", expire_us=clock.now)
    await rows.job("kept", "SUCCEEDED")
    told: set[str] = set()
    rows.db.on_commit = lambda uids, are_new: told.update(uids or ())
    clock.pass_seconds(60)
    await janitor.step()
    left = await rows.db.read(lambda conn: conn.execute(select(JOBS.c.job_id)).scalars().all())
    assert sorted(left) == ["kept", "live", "young"]
    assert await rows.count(ATTEMPTS) == 0
    assert len(told) == 30, "those who watch a job hear of it"


async def test_what_a_live_student_needs_stays(janitor: Janitor, rows: Rows, clock: TestClock) -> None:
    teacher = await rows.job("teacher", "SUCCEEDED", expire_us=clock.now)
    waiting = await rows.job("waiting", "QUEUED", teacher_uid=teacher)
    running = await rows.job("running", "RUNNING", teacher_uid="gone", teacher_sha256="a1")
    for sha256 in ("a1", "a2"):
        await rows.artifact(sha256, {"files": []}, expire_us=clock.now)
    await janitor.step()
    assert (await rows.jobs.get("teacher")) is not None
    assert await rows.artifacts() == ["a1"]
    await rows.set(JOBS, waiting, teacher_sha256="a1")
    await rows.set(JOBS, running, state="FAILED", end_us=clock.now)
    await janitor.step()
    assert (await rows.jobs.get("teacher")) is None
    assert await rows.artifacts() == ["a1"], "another live student learns from it"
    await rows.set(JOBS, waiting, state="CANCELLED", end_us=clock.now)
    await janitor.step()
    assert await rows.artifacts() == []


async def test_every_artifact_is_on_one_page_of_references(rows: Rows) -> None:
    for sha256 in ("a3", "a1", "a2"):
        await rows.artifact(sha256, {"files": [{"sha256": f"of {sha256}"}]})
    every = ["a1", "of a1", "a2", "of a2", "a3", "of a3"]
    for size in range(1, 5):
        page, pages = None, []
        while not pages or page is not None:
            found, page = await rows.db.read(page_of_references, page, size)
            pages.append(found)
        assert [found for found in pages if found] == [set(every[at : at + 2 * size]) for at in range(0, 6, 2 * size)]


# --- checkpoints


@pytest.mark.parametrize(
    ("state", "days", "left"),
    [
        ("RUNNING", 100, ["20", "30"]),
        ("QUEUED", 100, ["20", "30"]),
        ("SUCCEEDED", 0, []),
        ("FAILED", 6, ["10", "20", "30"]),
        ("FAILED", 8, []),
        ("CANCELLED", 6, ["10", "20", "30"]),
        ("CANCELLED", 8, []),
    ],
)
async def test_checkpoints_that_nobody_resumes_from_go(
    janitor: Janitor, rows: Rows, store: BlobStore, clock: TestClock, folder: Path, state: str, days: int, left: list
) -> None:
    uid = await rows.job("a", state)
    await rows.attempt(uid, "first", "LOST")
    await rows.attempt(uid, "second", "RUNNING" if state == "RUNNING" else "FAILED", number=2)
    await rows.checkpoints(uid, "first", store, folder, 10, 20)
    await rows.checkpoints(uid, "second", store, folder, 30)
    clock.pass_seconds(days * DAY)
    await collect(janitor, clock)
    assert await rows.count(CHECKPOINTS) == len(left)
    found = keys(store, "attempts/")
    assert sorted({key.split("/")[3] for key in found}) == left
    assert len(found) == 2 * len(left), "a file and the manifest of each"


async def test_checkpoints_wait_for_a_store_that_is_away(
    janitor: Janitor, rows: Rows, store: BlobStore, tmp_path: Path, folder: Path, executor: ScriptedExecutor
) -> None:
    uid = await rows.job("a", "SUCCEEDED")
    await rows.attempt(uid, "u", "SUCCEEDED")
    await rows.checkpoints(uid, "u", store, folder, 10)
    (tmp_path / "store").rename(tmp_path / "away")
    executor.away = True
    await janitor.step()
    assert await rows.count(CHECKPOINTS) == 1
    (tmp_path / "away").rename(tmp_path / "store")
    await janitor.step()
    assert await rows.count(CHECKPOINTS) == 0
    assert keys(store, "attempts/") == []


async def test_torn_checkpoints_and_markers_go_when_their_attempt_is_over(
    janitor: Janitor, rows: Rows, store: BlobStore, clock: TestClock, folder: Path
) -> None:
    uid = await rows.job("a")
    await rows.attempt(uid, "lost", "LOST")
    await rows.attempt(uid, "live", "RUNNING", number=2)
    await rows.checkpoints(uid, "lost", store, folder, 10)
    for attempt in ("lost", "live", "deleted"):
        store.put(f"attempts/{attempt}/checkpoints/20/state", b"torn")
        store.put(marker_key(attempt), b"{}")
    await collect(janitor, clock)
    assert len(keys(store, "attempts/")) == 8, "all of it is young"
    clock.pass_seconds(GRACE_US / SECOND)
    await collect(janitor, clock)
    assert keys(store, "attempts/") == [
        "attempts/live/RESULT.json",
        "attempts/live/checkpoints/20/state",
        "attempts/lost/checkpoints/10/manifest.json",
        "attempts/lost/checkpoints/10/state",
    ]


# --- blobs


async def test_blobs_that_nothing_refers_to_go_after_the_grace(
    janitor: Janitor, rows: Rows, store: BlobStore, clock: TestClock, artifact: Callable[..., Path]
) -> None:
    kept = publish(store, artifact(shared=b"shared", own=b"own"), "u1")
    await rows.artifact(kept, json.loads(store.get(f"manifests/sha256/{kept}")))
    publish(store, artifact(shared=b"shared", torn=b"torn"), "u2")
    await collect(janitor, clock)
    assert len(keys(store, "blobs/") + keys(store, "manifests/")) == 5
    clock.pass_seconds(GRACE_US / SECOND)
    await collect(janitor, clock)
    assert len(keys(store, "blobs/") + keys(store, "manifests/")) == 3
    verify(store, kept)
    assert store.size(COLLECTION_KEY) is None


async def test_nothing_that_a_live_attempt_may_rely_on_goes(
    janitor: Janitor, rows: Rows, store: BlobStore, clock: TestClock, artifact: Callable[..., Path]
) -> None:
    attempt = await rows.attempt(await rows.job("a"), "live")
    digest = publish(store, artifact(weights=b"w"), "live")
    clock.pass_seconds(30 * DAY)  # it waits for the finalizer, which waits for the store
    await collect(janitor, clock)
    verify(store, digest)
    await rows.set(ATTEMPTS, attempt, state="LOST", end_us=clock.now)
    await collect(janitor, clock)
    assert keys(store, "blobs/") == []


async def test_an_upload_during_a_collection_puts_back_what_it_loses(
    rows: Rows, store: BlobStore, clock: TestClock, artifact: Callable[..., Path], executor: ScriptedExecutor
) -> None:
    """The worst moment: the collector has listed an old blob, an upload writes it again, the collector deletes it."""
    await Ownership(rows.db, store).check()
    folder = artifact(weights=b"w")
    key = blob_key(hashlib.sha256(b"w").hexdigest())
    store.put(key, b"w")
    tries: list[str] = []

    class Interleaved:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def delete(self, deleted: str) -> None:
            if deleted == key:
                with pytest.raises(Exception, match="garbage-collected"):
                    publish(store, folder, "u")
                tries.append(deleted)
            store.delete(deleted)

    janitor = start(rows.db, executor, Interleaved(), clock)  # type: ignore[arg-type]
    clock.pass_seconds(2 * GRACE_US / SECOND)
    await collect(janitor, clock)
    assert tries == [key]
    assert store.size(key) is None
    verify(store, publish(store, folder, "u"))


async def test_the_flag_of_a_collection_that_was_killed_goes_with_the_next_start(
    db: Database, executor: ScriptedExecutor, store: BlobStore, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(COLLECTION_KEY, b"a")
    await start(db, executor, store, clock, server="b").step()
    assert store.size(COLLECTION_KEY) == 1, "another server may be collecting"
    await start(db, executor, store, clock, server="a").step()
    assert store.size(COLLECTION_KEY) is None
    store.put(COLLECTION_KEY, b"c")
    monkeypatch.setattr("mvprune_service.control.collector._ABANDONED_US", -SECOND)
    await start(db, executor, store, clock, server="a").step()
    assert store.size(COLLECTION_KEY) is None, "it is older than any step can be"
