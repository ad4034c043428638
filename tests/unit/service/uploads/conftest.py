"""A server that takes uploads, on each database and with each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mvprune_service.db.database import Database
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore

from ..conftest import ScriptedExecutor, TestClock
from .sender import Sender, sending
from .world import World


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    if request.param == "local":
        return open_store((tmp_path / "store").as_uri())
    server = request.getfixturevalue("seaweedfs")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{server.url}/{tmp_path.name}")


@pytest.fixture
async def sender(db: Database, store: BlobStore, clock: TestClock) -> AsyncIterator[Sender]:
    async with sending(db, store, clock) as made:
        yield made


@pytest.fixture
def world(
    db: Database, store: BlobStore, executor: ScriptedExecutor, clock: TestClock, sender: Sender, tmp_path: Path
) -> World:
    return World(db, store, executor, clock, sender, tmp_path / "uploads")
