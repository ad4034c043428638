"""A server that takes uploads, on each database and with each store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.neighbours import store as store  # of each kind: nearer than the one that the other tests share

from mvprune_service.db.engine.database import Database
from mvprune_service.stores.base import BlobStore

from ..conftest import ScriptedExecutor, TestClock
from .sender import Sender, sending
from .world import World


@pytest.fixture
async def sender(db: Database, store: BlobStore, clock: TestClock) -> AsyncIterator[Sender]:
    async with sending(db, store, clock) as made:
        yield made


@pytest.fixture
def world(
    db: Database, store: BlobStore, executor: ScriptedExecutor, clock: TestClock, sender: Sender, tmp_path: Path
) -> World:
    return World(db, store, executor, clock, sender, tmp_path / "uploads")
