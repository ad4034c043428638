"""Logs that are longer than what the database keeps of them: both databases with both stores, and a server that is
killed while it moves one."""

from __future__ import annotations

import asyncio
import gzip
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.logged import Logged, lines
from tests.unit.service.conftest import Jobs
from tests.waiting import until

from mvprune.client.client import Client
from mvprune_service.control.log_mover import LogMover
from mvprune_service.db.attempt_logs import CHUNK_BYTES, KEPT_BYTES, LONG_BYTES
from mvprune_service.db.engine.database import Database
from mvprune_service.stores.base import BlobStore

from ..conftest import server_path
from .conftest import keys_in
from .servers import Data, Server

WORDY = {"PYTHONPATH": str(Path(__file__).with_name("chatty")), "CHATTY_LINES": "10000"}


@pytest.mark.slow
async def test_a_log_is_one_log_while_it_grows_and_after_its_end(
    new_database: Callable[..., str], store: BlobStore
) -> None:
    text, draw = lines(150_000), random.Random(0)
    assert len(text) > 3 * CHUNK_BYTES
    with closing(Database(new_database())) as db:
        mover = LogMover(db, store)
        logged = await Logged.start(db, store, Jobs(db))
        follower = asyncio.create_task(logged.read(follow=True))
        while logged.sent < len(text):
            await logged.append(text[logged.sent : logged.sent + draw.randint(1, 150_000)])
            if draw.random() < 0.2:
                await mover.step()
                assert await logged.read() == text[: logged.sent]
        await mover.step()
        assert len(await logged.chunk_uids()) >= 3, "it moved while it grew"
        assert len(await logged.rows()) < CHUNK_BYTES + KEPT_BYTES
        await logged.end()
        await mover.step()
        assert await follower == text
        assert await logged.read() == text
        for offset in (0, CHUNK_BYTES - 1, CHUNK_BYTES, len(text) - KEPT_BYTES - 1, len(text) - KEPT_BYTES, len(text)):
            assert await logged.read(offset) == text[offset:]
        assert await logged.read(len(text) + 1) == b""
        for offset in draw.choices(range(len(text)), k=20):
            page = await anext(logged.follow(offset, follow=False))
            assert page.data == text[offset : offset + len(page.data)] != b""
        assert await logged.rows() == text[-KEPT_BYTES:]
        stored = [store.get(f"attempts/{logged.attempt_uid}/logs/{uid}") for uid in await logged.chunk_uids()]
        assert b"".join(map(gzip.decompress, stored)) == text[:-KEPT_BYTES]
        assert len(keys_in(store, "attempts/")) == len(stored), "no chunk was written twice"
        assert sum(map(len, stored)) < len(text) / 3
        logged.reader.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "home")
    yield server
    server.close()


@pytest.mark.slow
def test_a_server_that_is_killed_between_a_chunk_and_its_rows_loses_nothing(server: Server, tmp_path: Path) -> None:
    data = Data.write(tmp_path)
    process = server.start({**WORDY, "MVPRUNE_FAILPOINTS": "record_log_chunk.before_commit=kill:1"})
    with Client(server.address) as client:
        job = client.submit(
            model="bert-base-uncased",
            task="text-classification",
            density=0.1,
            train=server_path(data.train),
            validation=server_path(data.validation),
            cpus=1,
        )
        until(lambda: process.poll() is not None, "the server was killed with a chunk in the store")
        assert len(list((server.home / "store" / "attempts").glob("*/logs/*"))) == 1
        assert read(server, "SELECT count(*) FROM log_chunks") == 0
        with closing(sqlite3.connect(server.home / "mvprune.sqlite")) as db:
            db.execute("UPDATE long_logs SET due_us = 0")  # the claim is over
            db.commit()
        server.start(WORDY)
        until(lambda: read(server, "SELECT count(*) FROM log_chunks") > 1, "the log moves while it grows")
        client.cancel(job)
        until(lambda: client.get(job).state == "CANCELLED", "the job ends")
        text = b"".join(client.logs(job))
        until(lambda: read(server, "SELECT sum(length(data)) FROM logs") <= LONG_BYTES, "only the tail is kept")
        assert b"".join(client.logs(job)) == text
    steps = [line for line in text.split(b"\n") if line.startswith(b"step ")]
    assert len(text) > 2 * CHUNK_BYTES
    del steps[-1]  # it may have been cut by the end of the trainer
    assert steps == [b"step %d" % number for number in range(len(steps))]


def read(server: Server, query: str) -> int:
    """A number from the server's database."""
    with closing(sqlite3.connect(server.home / "mvprune.sqlite")) as db:
        return int(db.execute(query).fetchone()[0])
