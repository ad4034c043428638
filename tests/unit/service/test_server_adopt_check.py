"""`mvpctl server adopt-store` and `mvpctl server check`, and starts that need the first, on both databases."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, make_url, text
from tests.logged import Logged, lines
from tests.unit.service.conftest import Jobs
from tests.waiting import until

from mvprune.cli import main
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.command_line import CommandFailed
from mvprune_service.commands.check import check
from mvprune_service.config import Settings
from mvprune_service.control.log_mover import LogMover
from mvprune_service.control.ownership import Ownership, Standing, key_of, read_marks
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.installation import Mark
from mvprune_service.db.engine.integrity import Witness
from mvprune_service.db.engine.opening import opened, prepare
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.uploads import UPLOAD_CHUNKS
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.layout import manifest_key, publish

from .plane import artifact

LATER = Mark("", 0, "v2-of-a-later-version")


@pytest.fixture
def url(new_database: Callable[..., str]) -> str:
    return new_database(empty=True)


def own(url: str, store: BlobStore, *marks: int) -> None:
    """Serves from a database for a moment: makes its schema, and marks the store."""
    with opened(url) as db:
        prepare(db, migrate=False)

        async def mark() -> None:
            await Ownership(db, store).check()
            for _ in marks:
                await Ownership(db, store).cover()

        asyncio.run(mark())


def standing(url: str, store: BlobStore) -> Standing:
    with opened(url) as db:
        return asyncio.run(Ownership(db, store).look()).standing


def published(url: str, store: BlobStore, folder: Path) -> str:
    """An artifact in the store, and its row."""
    sha256 = publish(store, artifact(folder), "attempt")
    manifest = json.loads((folder / "manifest.json").read_text())
    row = {"project": "p", "sha256": sha256, "attempt": 1, "manifest_bytes": 1, "create_us": 1, "manifest": manifest}

    def work(tx: Tx) -> None:
        tx.conn.execute(insert(ARTIFACTS).values(**row))

    with opened(url) as db:
        prepare(db, migrate=False)
        asyncio.run(db.write(work))
    return sha256


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["server", *words])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_adopting_says_what_it_finds_and_needs_a_yes(
    url: str, store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = f"sqlite:///{tmp_path / 'old.sqlite'}"
    own(old, store)
    sha256 = published(old, store, tmp_path / "artifact")
    with opened(url) as db:
        prepare(db, migrate=False)
    given = ("adopt-store", "--database-url", url, "--store", store.url, "--home", str(tmp_path))
    before = read_marks(store)
    code, out, _ = run(capsys, *given)
    assert code == 2
    assert "objects     2 of artifacts; this database refers to none of 2" in out
    assert "the store belongs to database" in out
    assert out.endswith("nothing was changed; --yes adopts the store\n")
    assert read_marks(store) == before
    code, out, _ = run(capsys, *given, "--yes", "-o", "json")
    told = json.loads(out)
    assert (code, told["adopted"], told["standing"], told["lost"]) == (0, True, "foreign", None)
    assert told["marked_by"] == before[0].database != told["database"]
    assert standing(url, store) is Standing.OURS
    assert run(capsys, *given)[:2][0] == 0
    assert run(capsys, *given, "--yes")[1].endswith("nothing to do\n")
    assert store.size(manifest_key(sha256)) is not None
    assert standing(old, store) is Standing.FOREIGN


def test_an_empty_database_adopts_only_when_it_is_meant(
    url: str, store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own(f"sqlite:///{tmp_path / 'old.sqlite'}", store)
    given = ("adopt-store", "--database-url", url, "--store", store.url, "--home", str(tmp_path))
    code, out, _ = run(capsys, *given)
    assert code == 2
    assert "this one is empty" in out
    if url.startswith("sqlite"):
        assert not Path(str(make_url(url).database)).exists()
    assert run(capsys, *given, "--yes")[0] == 0
    assert standing(url, store) is Standing.OURS


def test_what_cannot_be_adopted_is_one_line(
    url: str, store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("adopt-store", "--home", str(tmp_path), "--yes", "--database-url")
    for words, told in (
        ((url, "--store", (tmp_path / "nowhere").as_uri()), "is no store: is its disk mounted?"),
        ((url, "--store", "ftp://x"), "store must be file:///absolute/folder or "),
        (("postgresql://me:s3cr3t@127.0.0.1:9/x", "--store", store.url), "the database cannot be used: connection"),
        (("mysql://x", "--store", store.url), "got one with mysql:"),
    ):
        code, _, error = run(capsys, *given, *words)
        assert code == 1
        assert told in error
        assert error.count("\n") == 1
        assert "s3cr3t" not in error


def test_a_database_that_a_server_uses_is_not_adopted_behind_its_back(
    store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path / 'x.sqlite'}"
    with opened(url) as db:
        prepare(db, migrate=False)
        store.put(key_of(LATER), b"")
        words = ("adopt-store", "--home", str(tmp_path), "--database-url", url, "--store", store.url)
        assert run(capsys, *words)[0] == 2, "it can be looked at"
        code, _, error = run(capsys, *words, "--yes")
        assert (code, "another server uses the database" in error) == (1, True)
    assert read_marks(store) == [LATER]


def settings(tmp_path: Path, url: str, store: BlobStore) -> Settings:
    local = {"executor": "local", "address": "127.0.0.1:0", "worker_address": "127.0.0.1:0", "roots": (tmp_path,)}
    return Settings(home=tmp_path / "home", database_url=url, store=store.url, **local)  # type: ignore[arg-type]


async def test_a_database_older_than_its_store_is_refused_until_it_is_adopted(
    url: str, store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.to_thread(own, url, store)
    (mark,) = read_marks(store)
    store.delete(key_of(mark))
    later = replace(mark, generation=mark.generation + 100, token="later")
    store.put(key_of(later), b"")
    with pytest.raises(StartError) as caught:
        async with Service(settings(tmp_path, url, store)):
            pass
    assert "is older than the store's mark (generation " in str(caught.value)
    assert "`mvpctl server adopt-store`" in str(caught.value)
    words = ("adopt-store", "--home", str(tmp_path), "--database-url", url, "--store", store.url, "--yes")
    assert (await asyncio.to_thread(run, capsys, *words))[0] == 0
    async with Service(settings(tmp_path, url, store)):
        pass
    assert read_marks(store)[0].generation > later.generation


async def test_another_database_serves_and_says_that_it_deletes_nothing(
    url: str, store: BlobStore, tmp_path: Path
) -> None:
    await asyncio.to_thread(own, f"sqlite:///{tmp_path / 'old.sqlite'}", store)
    before = read_marks(store)
    async with Service(settings(tmp_path, url, store)) as service:
        await asyncio.to_thread(
            until, lambda: "garbage collection" in service.components.problems.texts(), "it says so"
        )
        assert "the store belongs to database" in service.components.problems.texts()["garbage collection"]
    assert read_marks(store) == before


def test_lost_commits_are_accepted_knowingly_and_the_wal_is_kept(
    store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.sqlite"
    url = f"sqlite:///{file}"
    own(url, store)
    backup = tmp_path / "backup"
    shutil.copyfile(file, backup)
    own(url, store, 1, 2)
    shutil.copyfile(backup, file)
    wal = file.with_name("x.sqlite-wal")
    wal.write_bytes(b"what a WAL may hold")
    words = ("adopt-store", "--home", str(tmp_path), "--database-url", url, "--store", store.url)
    code, out, _ = run(capsys, *words, "-o", "json")
    told = json.loads(out)
    assert (code, told["standing"], told["adopted"]) == (2, "newer", False)
    assert "has lost commits that were acknowledged" in told["lost"]
    assert file.read_bytes() == backup.read_bytes()
    code, out, _ = run(capsys, *words, "--yes", "-o", "json")
    kept = Path(json.loads(out)["kept_wal"])
    assert kept.read_bytes() == b"what a WAL may hold"
    said = Witness(file).read()
    assert said is not None
    assert standing(url, store) is Standing.OURS


def test_a_check_of_what_is_whole(url: str, store: BlobStore, tmp_path: Path, capsys: Any) -> None:
    own(url, store)
    published(url, store, tmp_path / "artifact")
    words = ("check", "--home", str(tmp_path), "--database-url", url, "--store", store.url)
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "1 artifacts, 0 checkpoints, 0 chunks, 0 chunks of logs, 0 problems" in out
    assert run(capsys, *words, "--files")[0] == 0


def test_a_check_finds_chunks_of_uploads_that_the_store_has_lost(
    url: str, store: BlobStore, tmp_path: Path, capsys: Any
) -> None:
    own(url, store)
    sha256 = hashlib.sha256(b"chunk").hexdigest()
    row = {"project": "p", "sha256": sha256, "uid": "u", "size_bytes": 5, "is_ready": True, "create_us": 1}
    waiting = row | {"sha256": "0" * 64, "uid": "v", "is_ready": False}

    def work(tx: Tx) -> None:
        tx.conn.execute(insert(UPLOAD_CHUNKS), [row, waiting])

    with opened(url) as db:
        prepare(db, migrate=False)
        asyncio.run(db.write(work))
    words = ("check", "--home", str(tmp_path), "--database-url", url, "--store", store.url, "--files", "-o", "json")
    for content, told in (
        (b"chunk", None),
        (b"other", "has other content than its SHA-256 says"),
        (b"short", "has other content"),
        (b"long one", "has 8 bytes, the database says 5"),
        (None, "is missing"),
    ):
        store.delete("uploads/u") if content is None else store.put("uploads/u", content)
        code, out, _ = run(capsys, *words)
        found = json.loads(out)
        assert (code, found["chunks"]) == (0 if told is None else 1, 1)
        assert [told in problem and sha256 in problem for problem in found["problems"]] == [True] * (told is not None)


def test_a_check_finds_chunks_of_logs_that_the_store_has_lost(
    url: str, store: BlobStore, tmp_path: Path, capsys: Any
) -> None:
    own(url, store)
    log = lines(3_000)

    async def move(db: Database) -> str:
        logged = await Logged.start(db, store, Jobs(db))
        await logged.append(log)
        await logged.end()
        await LogMover(db, store).step()
        (uid,) = await logged.chunk_uids()
        return f"attempts/{logged.attempt_uid}/logs/{uid}"

    with opened(url) as db:
        prepare(db, migrate=False)
        key = asyncio.run(move(db))
    packed = store.get(key)
    words = ("check", "--home", str(tmp_path), "--database-url", url, "--store", store.url, "--files", "-o", "json")
    for content, told in (
        (packed, None),
        (packed[:-1] + b"x", "it has other content than its SHA-256 says"),
        (b"short", f"it has 5 bytes, the database says {len(packed)}"),
        (None, "it is missing"),
    ):
        store.delete(key) if content is None else store.put(key, content)
        code, out, _ = run(capsys, *words)
        found = json.loads(out)
        assert (code, found["log_chunks"]) == (0 if told is None else 1, 1)
        assert found["problems"] == ([f"log {key}: {told}"] if told else [])


def test_a_check_finds_what_the_store_has_lost(url: str, store: BlobStore, tmp_path: Path, capsys: Any) -> None:
    own(url, store)
    sha256 = published(url, store, tmp_path / "artifact")
    key = next(entry.key for entry in store.list("blobs/"))
    words = ("check", "--home", str(tmp_path), "--database-url", url, "--store", store.url, "-o", "json")
    whole = store.get(key)
    store.put(key, b"x" * len(whole))
    assert run(capsys, *words)[0] == 0, "sizes are right"
    for extra, content, told in (
        (["--files"], b"x" * len(whole), "weights: SHA-256 "),
        ([], b"short", "weights has 5 bytes, the manifest says 100"),
        ([], None, "weights is missing"),
    ):
        store.delete(key) if content is None else store.put(key, content)
        code, out, _ = run(capsys, *words, *extra)
        (problem,) = json.loads(out)["problems"]
        assert code == 1
        assert problem.startswith(f"artifact {sha256} of projects/p: {told}")
    store.delete(manifest_key(sha256))
    store.put(key_of(LATER), b"")
    code, out, _ = run(capsys, *words)
    assert json.loads(out)["problems"] == [
        f"the store {store.url}: the store has a mark of another version",
        f"artifact {sha256} of projects/p: manifest {sha256} is missing",
    ]


def test_a_check_finds_rows_that_say_something_else(url: str, store: BlobStore, tmp_path: Path) -> None:
    own(url, store)
    published(url, store, tmp_path / "artifact")
    with closing(Database(url)) as db, db.engine.begin() as conn:
        conn.execute(text("UPDATE artifacts SET manifest = '{\"files\": []}'"))
    report = check(files=False, home=str(tmp_path), database_url=url, store=store.url)
    assert report.problems[0].endswith("the database has another manifest than the store")


def test_a_check_finds_damage_in_sqlite(store: BlobStore, tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    given = {"home": str(tmp_path), "database_url": f"sqlite:///{file}", "store": store.url}
    with pytest.raises(CommandFailed, match="the database is empty"):
        check(files=False, **given)
    own(given["database_url"], store)
    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("INSERT INTO logs VALUES ('nobody', 0, '')")
    (problem,) = check(files=False, **given).problems
    assert problem.endswith("row 1 of logs names a row of attempts that is not there")
    with closing(sqlite3.connect(file)) as conn, conn:
        conn.execute("DELETE FROM logs")
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute("INSERT INTO projects (project) VALUES ('p')")
        conn.execute("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'projects'")
    assert any("the database" in problem for problem in check(files=False, **given).problems)
