"""Stores and databases that were swapped, restored and mixed: every pairing, its artifacts counted before and after.

All files in the stores are old, and the server collects garbage all the time, without any delay where the store is not
the database's own. A blob that nothing refers to lies in each store: it shows whether anything was deleted.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, make_url, select

from mvprune.cli import main
from mvprune_service.clock import SECOND, system_clock
from mvprune_service.control.collector import GRACE_US
from mvprune_service.control.ownership import OWNER_KEY
from mvprune_service.db.models import ARTIFACTS
from mvprune_service.db.server_models import QUARANTINE
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import COLLECTION_KEY, blob_key, verify

from ..neighbours import PostgresServer
from .counts import COUNTS
from .harness import Client, Record, Server, eventually, settle

ORPHAN = blob_key("0f" * 32)
DATABASES = ("a", "b", "empty", "older")  # older: a backup of `a`, made before its last artifacts
STORES = ("a", "b", "empty")


class Ground:
    """Databases and stores to take copies of."""

    def __init__(self, folder: Path, new_database: Callable[..., str], postgres: PostgresServer | None) -> None:
        self._folder, self._postgres = folder, postgres
        self.databases = {"empty": new_database(empty=True)}
        self.stores: dict[str, Path] = {}
        for name in ("a", "b"):
            server = Server(folder / name, database=new_database(empty=True))
            try:
                for artifacts in (1, 2):
                    server.start()
                    publish(server, artifacts)
                    server.kill()
                    if (name, artifacts) == ("a", 1):
                        self.databases["older"] = self.copied(server.database)
            finally:
                server.kill()
            self.databases[name], self.stores[name] = server.database, server.home / "store"

    def copied(self, url: str) -> str:
        """A copy of a database, as a backup is: nothing else is copied with it."""
        if self._postgres is not None:
            name = f"copy{uuid.uuid4().hex}"
            self._postgres.execute(f"CREATE DATABASE {name} TEMPLATE {make_url(url).database}")
            return self._postgres.url(name)
        source, target = Path(str(make_url(url).database)), self._folder / f"{uuid.uuid4().hex}.sqlite"
        if source.exists():
            with closing(sqlite3.connect(source)) as original, closing(sqlite3.connect(target)) as copy:
                original.backup(copy)
        return f"sqlite:///{target}"

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
    return {entry.key for entry in open_store(server.store).list("")} - {OWNER_KEY, COLLECTION_KEY}


def artifacts(server: Server) -> int:
    """How many of its database's artifacts are whole."""
    engine = create_engine(server.database)
    with engine.connect() as conn:
        known = conn.execute(select(ARTIFACTS.c.sha256)).scalars().all()
    engine.dispose()
    for sha256 in known:
        verify(open_store(server.store), sha256)
    return len(known)


def quarantined(server: Server) -> int:
    engine = create_engine(server.database)
    with engine.connect() as conn:
        count = conn.execute(select(func.count()).select_from(QUARANTINE)).scalar_one()
    engine.dispose()
    return count


def starts(server: Server) -> bool:
    """Whether it serves; otherwise it has refused to start."""
    server.start(refusal=True)
    return server.process.exitcode is None


def adopt(server: Server) -> None:
    given = ["--home", str(server.home), "--database-url", server.database, "--store", server.store]
    assert main(["server", "adopt-store", *given, "--yes", "--quiet"]) == 0


@pytest.fixture
def ground(request: pytest.FixtureRequest, tmp_path: Path, new_database: Callable[..., str]) -> Ground:
    is_postgres = new_database(empty=True).startswith("postgresql")
    return Ground(tmp_path, new_database, request.getfixturevalue("postgres") if is_postgres else None)


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
