"""Garbage is collected while artifacts are published from many threads: nothing that a row needs is ever removed."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import delete, insert, select

from mvprune_migrations import upgrade
from mvprune_service.clock import SECOND, system_clock
from mvprune_service.control.collector import _PARTS, GRACE_US, Collector
from mvprune_service.control.ownership import Ownership
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable
from mvprune_service.stores.layout import blob_key, publish, verify

ROUNDS, PUBLISHERS, BLOBS = 5, 3, 12


@pytest.fixture
async def db(tmp_path: Path) -> AsyncIterator[Database]:
    with closing(Database(f"sqlite:///{tmp_path / 'db.sqlite'}")) as db:
        upgrade(db.engine)
        yield db


def make(folder: Path, blobs: list[int]) -> Path:
    """An artifact of files that others have too."""
    folder.mkdir()
    files = []
    for blob in blobs:
        data = f"blob {blob}".encode() * 1000
        (folder / f"file{blob}").write_bytes(data)
        files.append({"path": f"file{blob}", "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    (folder / "manifest.json").write_text(json.dumps({"files": files, "metrics": {}}))
    return folder


def age(root: Path) -> None:
    """Makes everything in the store so old that a collection may delete it."""
    then = (system_clock() - 2 * GRACE_US) / SECOND
    for path in root.rglob("*"):
        os.utime(path, (then, then))


async def published(db: Database, store: BlobStore, folder: Path) -> None:
    """Publishes as a worker does, which waits while garbage is collected, and makes the row as the finalizer does."""
    attempt = uuid.uuid4().hex
    while True:
        try:
            sha256 = await asyncio.to_thread(publish, store, folder, attempt)
            break
        except StoreUnavailable:
            await asyncio.sleep(0.001)

    manifest = json.loads((folder / "manifest.json").read_text())

    def record(tx: Tx) -> None:
        tx.conn.execute(delete(ARTIFACTS).where(ARTIFACTS.c.sha256 == sha256))
        row = {"project": "p", "sha256": sha256, "attempt": 1, "manifest_bytes": 1, "create_us": tx.now}
        tx.conn.execute(insert(ARTIFACTS).values(**row, manifest=manifest))

    await db.write(record)


async def keep_publishing(db: Database, store: BlobStore, folders: list[Path], done: asyncio.Event) -> None:
    """One artifact after another, as long as garbage is collected."""
    for number in itertools.count():
        await published(db, store, folders[number % len(folders)])
        if done.is_set():
            return


async def collect(db: Database, store: BlobStore) -> None:
    """A whole pass."""
    ownership = Ownership(db, store)
    collector = Collector(db, store, ownership, server="a", quarantine_us=0)
    for _ in range(1 + len(_PARTS)):
        collector.remove_left_flag()
        await ownership.check()
        await collector.step()


@pytest.mark.slow
async def test_no_collection_deletes_what_a_row_needs(db: Database, tmp_path: Path) -> None:
    store, rng = open_store((tmp_path / "store").as_uri()), random.Random(7)
    await Ownership(db, store).check()  # marks it
    folders = [make(tmp_path / str(number), rng.sample(range(BLOBS), 4)) for number in range(2 * PUBLISHERS)]
    for folder in folders:
        await published(db, store, folder)
    for _ in range(ROUNDS):
        rows = await db.read(lambda conn: conn.execute(select(ARTIFACTS.c.sha256)).scalars().all())
        await db.write(forget, [sha256 for sha256 in rows if rng.random() < 0.7])
        orphan = blob_key(hashlib.sha256(rng.randbytes(8)).hexdigest())
        store.put(orphan, b"nobody's")
        age(tmp_path / "store")
        done = asyncio.Event()
        publishers = [keep_publishing(db, store, rng.sample(folders, 3), done) for _ in range(PUBLISHERS)]
        publishing = asyncio.gather(*publishers)
        await collect(db, store)
        await collect(db, store)
        done.set()
        await publishing
        assert store.size(orphan) is None, "the collections deleted what nothing refers to"
        for sha256 in await db.read(lambda conn: conn.execute(select(ARTIFACTS.c.sha256)).scalars().all()):
            verify(store, sha256)


def forget(tx: Tx, gone: list[str]) -> None:
    """As when artifacts expire."""
    tx.conn.execute(delete(ARTIFACTS).where(ARTIFACTS.c.sha256.in_(gone)))
