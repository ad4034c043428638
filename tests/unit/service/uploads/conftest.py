"""A server that takes uploads, on each database and with each store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mvprune_service.db.database import Database
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore

from ..conftest import TestClock
from .sender import Sender, sending


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    if request.param == "local":
        return open_store((tmp_path / "store").as_uri())
    server = request.getfixturevalue("seaweedfs")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{server.url}/{tmp_path.name}")


@pytest.fixture
async def sender(
    db: Database, store: BlobStore, clock: TestClock, new_database: Callable[..., str]
) -> AsyncIterator[Sender]:
    async with sending(db, store, clock) as made:
        yield made
