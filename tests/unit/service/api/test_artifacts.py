"""ArtifactService without a network."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from sqlalchemy import insert
from tests.waiting import PATIENCE

from mvprune.v1 import artifact_pb2
from mvprune_service.api.artifacts import ArtifactServicer
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.tables.artifacts import ARTIFACTS

SHA256 = "a" * 64


class SilentStore:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Semaphore(0), threading.Event()

    def read(self, key: str, offset: int, limit: int) -> bytes:
        self.asked.release()
        self.go_on.wait(PATIENCE)
        return b""


async def test_a_store_that_does_not_answer_leaves_threads_to_others(db: Database) -> None:
    def add(tx: Tx) -> None:
        row = {"project": "p", "sha256": SHA256, "attempt": 1, "manifest_bytes": 0, "manifest": {"files": []}}
        tx.conn.execute(insert(ARTIFACTS).values(**row, create_us=tx.now))

    await db.write(add)
    store: Any = SilentStore()
    servicer = ArtifactServicer(db, store)
    request = artifact_pb2.ReadFileRequest(name=f"projects/p/artifacts/{SHA256}", path="manifest.json")
    context: Any = None
    streams = [asyncio.ensure_future(anext(servicer.ReadFile(request, context))) for _ in range(40)]
    await asyncio.to_thread(store.asked.acquire)
    try:
        await asyncio.wait_for(asyncio.to_thread(int), 20)
    finally:
        store.go_on.set()
    assert all(response.end for response in await asyncio.gather(*streams))
