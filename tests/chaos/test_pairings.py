"""Stores and databases that were swapped, restored and mixed: every pairing, its artifacts counted before and after.

Databases are copied while they are served. All files in the stores are old, and the server collects garbage all the
time, without any delay where the store is not the database's own. A blob that nothing refers to lies in each store: it
shows whether anything was deleted.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from sqlalchemy import Column, create_engine, select

from mvprune.cli import main
from mvprune_service.backup.references import is_content
from mvprune_service.clock import SECOND, system_clock
from mvprune_service.control.collector import GRACE_US
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.server import QUARANTINE
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import blob_key, verify

from ..copies import copy_database
from .counts import COUNTS
from .harness import PARENT, Client, Record, Server, eventually, settle

ORPHAN = blob_key("0f" * 32)
DATABASES = ("a", "b", "empty", "older")  # older: a copy of `a`, made while it was served, before its last artifacts
STORES = ("a", "b", "empty")
_JOBS = 6
_MOMENTS = random.Random(8)


class Ground:
    """Databases and stores to take copies of."""

    def __init__(self, folder: Path, new_database: Callable[..., str]) -> None:
        self._folder, self._new_database = folder, new_database
        self.databases = {"empty": new_database(empty=True)}
        self.stores: dict[str, Path] = {}
        for name in ("a", "b"):
            server = Server(folder / name, database=new_database(empty=True))
            try:
                server.start()
                publish(server, 1)
                if name == "a":
                    self.databases["older"] = self.copied(server.database)
                publish(server, 2)
            finally:
                server.kill()
            self.databases[name], self.stores[name] = server.database, server.home / "store"

    def copied(self, url: str) -> str:
        """A copy of a database, which may be served. Nothing else is copied with it."""
        is_empty = url == self.databases["empty"]
        copy = self._new_database(empty=is_empty)
        if not is_empty:
            copy_database(url, copy)
        return copy

    def server(self, database: str, store: str, **settings: str) -> Server:
        """A server on a copy of both. Everything in the store is old."""
        folder = self._folder / f"{database}-{store}"
        root = folder / "store"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if store in self.stores:
            shutil.copytree(self.stores[store], root)
            open_store(root.as_uri()).put(ORPHAN, b"nobody's")
            age(root)
        return Server(folder, database=self.copied(self.databases[database]), store=root.as_uri(), **settings)


def publish(server: Server, artifacts: int) -> None:
    """Lets a server make artifacts."""
    client = Client(server)
    records = []
    for number in range(artifacts):
        request = f"{artifacts}-{number}"
        records.append(Record(request, client.create(request, milliseconds=50).name))
    settle(server, records)
    client.close()


def age(root: Path) -> None:
    """Makes everything in a store so old that it may be deleted."""
    then = (system_clock() - 3 * GRACE_US) / SECOND
    for path in root.rglob("*"):
        os.utime(path, (then, then))


def contents(server: Server) -> set[str]:
    """All objects of a store that mean something to somebody."""
    return {entry.key for entry in open_store(server.store).list("") if is_content(entry.key)}


def artifacts(server: Server) -> int:
    """How many of its database's artifacts are whole."""
    known = column(server, ARTIFACTS.c.sha256)
    for sha256 in known:
        verify(open_store(server.store), sha256)
    return len(known)


def quarantined(server: Server) -> int:
    return len(column(server, QUARANTINE.c.key))


def column(server: Server, wanted: Column[str]) -> list[str]:
    """All values of a column of its database."""
    engine = create_engine(server.database)
    with engine.connect() as conn:
        values = list(conn.execute(select(wanted)).scalars())
    engine.dispose()
    return values


def starts(server: Server) -> bool:
    """Whether it serves; otherwise it has refused to start."""
    server.start(refusal=True)
    return server.process.exitcode is None


def adopt(server: Server) -> None:
    given = ["--home", str(server.home), "--database-url", server.database, "--store", server.store]
    assert main(["server", "adopt-store", *given, "--yes", "--quiet"]) == 0


@pytest.fixture
def ground(tmp_path: Path, new_database: Callable[..., str]) -> Ground:
    return Ground(tmp_path, new_database)


@pytest.mark.timeout(1200)
def test_no_pairing_of_store_and_database_loses_an_artifact(ground: Ground) -> None:
    for database, store in product(DATABASES, STORES):
        if store == "empty":
            pair_with_empty(ground, database)
        else:
            pair(ground, database, store)


def pair_with_empty(ground: Ground, database: str) -> None:
    """A database with artifacts whose store is empty, as when its URL is mistyped, refuses to start."""
    server = ground.server(database, "empty")
    try:
        assert starts(server) == (database == "empty"), server.tail()
    finally:
        server.kill()
    COUNTS["pairings"] += 1


def pair(ground: Ground, database: str, store: str) -> None:
    """Serves a store from a database that may not be its own; adopts it; and goes back to its own database."""
    server = ground.server(database, store, janitor_seconds="0.1", quarantine_days="0")
    before = contents(server)
    own = database == store
    try:
        if starts(server):
            if own:
                eventually(lambda: ORPHAN not in contents(server), 60, server.tail)
            else:
                eventually(lambda: "nothing is deleted from the store" in server.tail(), 60, server.tail)
                time.sleep(1)  # some more rounds
        else:
            assert database == "older", server.tail()
            assert "is older than the store's mark" in server.tail()
        server.kill()
        assert (artifacts(server) if own else contents(server)) == (3 if own else before), (database, store)
        if not own:
            adopted(server, before)
            given_back(ground, server, store, before)
    finally:
        server.kill()
    COUNTS["pairings"] += 1
    COUNTS["artifacts in pairings"] += 3


def adopted(server: Server, before: set[str]) -> None:
    """Garbage is noted, and stays for the default delay."""
    adopt(server)
    server.set(quarantine_days="7")
    server.start()
    eventually(lambda: quarantined(server) >= 1, 60, server.tail)
    time.sleep(3)  # a whole pass
    server.kill()
    assert contents(server) == before


def given_back(ground: Ground, server: Server, store: str, before: set[str]) -> None:
    """The store's own database finds everything in its place."""
    server.set(database_url=ground.copied(ground.databases[store]))
    adopt(server)
    server.start()
    eventually(lambda: quarantined(server) >= 1, 60, server.tail)
    server.kill()
    assert contents(server) == before
    assert artifacts(server) == 3


@pytest.mark.timeout(1200)
def test_no_copy_of_a_served_database_loses_an_artifact(tmp_path: Path, new_database: Callable[..., str]) -> None:
    """Copies are made at any moment, while jobs are created, run and end. Each is put back in the place of the newest
    database, without which the store has artifacts that it may not know."""
    server, copies, records = (
        Server(tmp_path / "served", database=new_database(), roots=str(tmp_path)),
        list[str](),
        list[Record](),
    )
    server.start()
    client = Client(server)
    try:
        for number in range(_JOBS):
            records.append(Record(f"{number}", client.create(f"{number}", milliseconds=200).name))
            for _ in range(2):
                time.sleep(_MOMENTS.uniform(0, 0.5))
                copies.append(new_database())
                copy_database(server.database, copies[-1])
        settle(server, records)
    finally:
        client.close()
        server.kill()
    assert artifacts(server) == len(records)
    before = {entry.key for entry in open_store(server.store).list("manifests/")}
    served = 0
    for number, copy in enumerate(copies):
        folder = tmp_path / f"copy{number}"
        shutil.copytree(server.home / "store", folder / "store")
        given = {"store": (folder / "store").as_uri(), "roots": str(tmp_path), "quarantine_days": "0"}
        other = Server(folder, database=copy, **given)
        served += put_back(other)
        kept = {entry.key for entry in open_store(other.store).list("manifests/")}
        assert before <= kept, (number, other.tail())
        for key in before:
            verify(open_store(other.store), key.rpartition("/")[2])
        shutil.rmtree(folder)
    COUNTS["copies of served databases"] += len(copies)
    COUNTS["of these served"] += served


def put_back(server: Server) -> bool:
    """Serves from a copy until its jobs have ended, then again until garbage was collected, if that is allowed. Returns
    whether it serves."""
    try:
        if not starts(server):
            assert "is older than the store's mark" in server.tail()
            return False
        settle(server, [Record(name, f"{PARENT}/jobs/{name}") for name in column(server, JOBS.c.job_id)])
        server.kill()
        open_store(server.store).put(ORPHAN, b"nobody's")
        age(Path(server.store.removeprefix("file://")))
        server.set(janitor_seconds="0.1")
        server.start()
        eventually(lambda: ORPHAN not in contents(server), 60, server.tail)
        time.sleep(1)  # the rest of the pass
    finally:
        server.kill()
    return True
