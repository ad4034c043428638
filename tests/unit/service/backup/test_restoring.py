"""`mvpctl server restore`: what it refuses, and what becomes of running jobs and of what is newer than the backup."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command as alembic
from sqlalchemy import select, text
from tests.integration.load import Load
from tests.logged import Logged, lines
from tests.unit.service.beating import steady
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock

from mvprune_migrations import config_for
from mvprune_service.clock import system_clock
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.log_mover import LogMover
from mvprune_service.control.ownership import key_of, read_marks
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.db import leases, records
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.installation import Mark
from mvprune_service.db.engine.opening import opened
from mvprune_service.db.leases import Fence
from mvprune_service.db.tables.schema import METADATA
from mvprune_service.ids import AttemptName
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.checkpoints import fetch_checkpoint
from mvprune_service.stores.layout import fetch

from .conftest import Installation, finished

New = Callable[[str], Installation]
DAY = 24 * 3600


def rows(url: str) -> dict[str, list[Any]]:
    """All rows, without what a restore changes."""
    with closing(Database(url)) as db, db.engine.connect() as conn:
        found = {table.name: conn.execute(select(table)).all() for table in METADATA.sorted_tables}
    return {name: sorted(map(repr, rows)) for name, rows in found.items() if name not in ("installation", "quarantine")}


@pytest.mark.slow
def test_a_backup_of_one_database_restores_into_the_other(
    new: New, place: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = new("server")
    other = "postgresql" if server.url.startswith("sqlite") else "sqlite"
    server.fill(lambda load: finished(load, "a"))

    async def more(load: Load) -> None:
        live = await load.start("b")
        point = {"metric": "loss", "step": 1, "value": 0.5, "time_us": 1, "attempt": 1}
        names = "job_uid, attempt_uid, attempt, metric, step, value, time_us"
        insert = text(
            f"INSERT INTO metrics ({names}) SELECT job_uid, uid, :attempt, :metric, :step, :value, :time_us "  # noqa: S608
            "FROM attempts WHERE number = :attempt"
        )
        await load.db.write(lambda tx: tx.conn.execute(insert, point) and None)
        assert live.attempt.job == "b"

    server.fill(more)
    before = rows(server.url)
    assert len(before["metrics"]) == 2
    server.run("backup", place)
    target = Installation(server.url, tmp_path / "target", server._capsys)
    if other == "sqlite":
        target.url = f"sqlite:///{tmp_path / 'target.sqlite'}"
    else:
        postgres = request.getfixturevalue("postgres")
        target.url = postgres.create(empty=True)
        request.addfinalizer(lambda: postgres.drop(target.url))
    code, told, _ = target.run("restore", place)
    assert (code, told["database"], told["owns_store"]) == (0, other, True)
    assert rows(target.url) == before
    target.fill(lambda load: finished(load, "c"))  # keys that a database counts go on
    with closing(Database(target.url)) as db, db.engine.begin() as conn:
        again = "SELECT job_uid, attempt_uid, attempt, metric, 2, value, time_us FROM metrics"
        conn.execute(text(f"INSERT INTO metrics (job_uid, attempt_uid, attempt, metric, step, value, time_us) {again}"))


@pytest.mark.slow
def test_a_log_in_the_store_is_part_of_a_backup(new: New, place: Path) -> None:
    server, other, log = new("server"), new("other"), lines(3_000)
    keys: list[str] = []

    async def move(load: Load) -> None:
        logged = await Logged.start(load.db, server.store, Jobs(load.db))
        await logged.append(log)
        await logged.end()
        await LogMover(load.db, server.store).step()
        keys.extend(f"attempts/{logged.attempt_uid}/logs/{uid}" for uid in await logged.chunk_uids())

    async def read(load: Load) -> None:
        (attempt,) = await load.db.read(records.attempts_of, (await Jobs(load.db).get("a")).uid, 0, 2)
        fence = Fence(AttemptName("p", "a", 1), attempt.fencing_token)
        logged = Logged(load.db, other.store, fence, attempt.uid)
        assert len(await logged.rows()) < len(log)
        assert await logged.read() == log

    server.fill(move)
    (key,) = keys
    code, made, _ = server.run("backup", place)
    assert (code, made["problems"]) == (0, [])
    assert server.run("backup", place, "--check")[0] == 0
    code, told, _ = other.run("restore", place)
    assert (code, told["owns_store"]) == (0, True)
    other.fill(read)
    server.store.delete(key)
    code, made, _ = server.run("backup", place.with_name("later"))
    (problem,) = made["problems"]
    assert (code, problem.startswith(f"log {key}: "), problem.endswith("is missing")) == (1, True, True)


def looking(load: Load, server: Installation) -> tuple[Watchdog, TestClock]:
    """The watchdog of a server that started some time after the restore; nothing runs on its executor."""
    clock = TestClock(system_clock())
    watchdog = Watchdog(
        load.db,
        ScriptedExecutor(),
        server.store,
        pace=steady(load.db),
        problems=Problems(),
        clock=clock,
    )
    clock.pass_seconds(60)
    return watchdog, clock


@pytest.mark.slow
def test_a_job_that_was_running_is_tried_again_from_its_checkpoint(new: New, place: Path, tmp_path: Path) -> None:
    server, other = new("server"), new("other")

    async def running(load: Load) -> None:
        await load.start("a", checkpoint=b"of the first attempt")

    server.fill(running)
    code, made, _ = server.run("backup", place)
    assert (code, made["checkpoints"], made["succeeded"]) == (0, 1, 0)
    assert other.run("restore", place)[0] == 0

    async def resume(load: Load) -> None:
        watchdog, clock = looking(load, other)
        await watchdog.step()
        clock.pass_seconds(10)
        await watchdog.step()
        job = await Jobs(load.db).get("a")
        assert (job.state, job.state_reason, job.attempts_left) == ("QUEUED", "WORKER_LOST", 1)
        (checkpoint,) = await load.db.read(leases.checkpoints_of, job.uid)
        place = (checkpoint.attempt_uid, checkpoint.step, checkpoint.manifest_sha256)
        fetch_checkpoint(other.store, *place, tmp_path / "resumed")
        assert (tmp_path / "resumed" / "state").read_bytes() == b"of the first attempt"

    other.fill(resume)


@pytest.mark.slow
def test_a_job_whose_result_came_after_the_backup_succeeds_if_the_store_has_it(
    on_sqlite: New, place: Path, tmp_path: Path
) -> None:
    server, other = on_sqlite("server"), on_sqlite("other")
    sha256 = ""

    async def running(load: Load) -> None:
        await load.start("a")

    async def upload(load: Load) -> None:
        nonlocal sha256
        live = await Jobs(load.db).live("a")
        sha256 = await load.upload(leases.Fence(live.name, live.attempt.fencing_token))

    server.fill(running)
    server.run("backup", place)
    server.fill(upload)
    other.store = server.store
    _, told, _ = other.run("restore", place)
    assert told["newer_artifacts"] == [sha256]

    async def look(load: Load) -> None:
        watchdog, _ = looking(load, other)
        await watchdog.step()
        await Finalizer(load.db, other.store).step()
        assert (await Jobs(load.db).get("a")).artifact_sha256 == sha256

    other.fill(look)
    fetch(other.store, sha256, tmp_path / "artifact")


@pytest.mark.slow
def test_what_is_newer_than_the_backup_is_reported_and_kept(on_sqlite: New, place: Path) -> None:
    server, other = on_sqlite("server"), on_sqlite("other")
    server.fill(lambda load: finished(load, "a"))
    server.run("backup", place)
    server.fill(lambda load: finished(load, "b"))
    for entry in server.store.list(""):
        os.utime(server.folder / "store" / entry.key, (1, 1))  # old enough to be deleted
    other.store = server.store
    code, told, _ = other.run("restore", place)
    assert (code, told["owns_store"], len(told["newer_artifacts"])) == (0, False, 1)
    before, marks = {entry.key for entry in server.store.list("")}, set(map(key_of, read_marks(server.store)))
    assert told["newer_objects"] == len(before - marks) - told["objects"] - 1, "and the marker of job a"

    async def collect(load: Load) -> None:
        clock, problems = TestClock(system_clock()), Problems()
        days: dict[str, Any] = {"request_days": 7, "checkpoint_days": 7, "quarantine_days": 0, "upload_days": 1}
        janitor = Janitor(load.db, ScriptedExecutor(), other.store, problems, server="a", clock=clock, **days)
        for _ in range(20):
            clock.pass_seconds(DAY)
            await janitor.step()
        assert "or of this one before it was restored" in problems.texts()["garbage collection"]

    other.fill(collect)
    assert {entry.key for entry in server.store.list("")} == before


@pytest.mark.slow
def test_a_restore_refuses_what_is_in_use(new: New, place: Path) -> None:
    server, other = new("server"), new("other")
    server.fill(lambda load: finished(load, "a"))
    server.run("backup", place)
    assert "the database must be empty, got one with rows" in server.run("restore", place)[2]
    other.home.mkdir()
    (other.home / "key").write_bytes(b"another key" * 10)
    assert "must not exist, or be that of the backup" in other.run("restore", place)[2]
    (other.home / "key").unlink()
    other.store.put(key_of(Mark("other", 1, "t")), b"")
    code, _, error = other.run("restore", place)
    assert (code, "the store belongs to database other, the backup is of" in error) == (1, True)
    other.store.delete(key_of(Mark("other", 1, "t")))
    with opened(other.url) as db:
        if other.url.startswith("sqlite"):
            assert "another server uses the database" in other.run("restore", place)[2]
        else:
            asyncio.run(_listening(db))
            assert "servers use the database: stop all of them first" in other.run("restore", place)[2]
    assert not (other.home / "key").exists()
    assert list(other.store.list("")) == []
    assert other.run("restore", place)[0] == 0


async def _listening(db: Database) -> None:
    """As a server does while it serves."""
    heard = asyncio.Event()
    db.on_commit = lambda uids, are_new: heard.set()
    db.listen()
    await heard.wait()


@pytest.mark.slow
def test_a_damaged_backup_changes_nothing(server: Installation, on_sqlite: New, place: Path) -> None:
    server.run("backup", place)
    other = on_sqlite("other")
    file = next(path for path in (place / "objects").rglob("*") if path.is_file() and path.stat().st_size == 2000)
    file.write_bytes(b"x" * 2000)
    code, _, error = other.run("restore", place)
    assert code == 1
    assert "is damaged: objects/" in error
    assert error.endswith("; nothing was changed\n")
    assert list(other.store.list("")) == []
    assert not Path(other.url.removeprefix("sqlite:///")).exists()


@pytest.mark.slow
def test_an_interrupted_restore_is_repeated(
    server: Installation, on_sqlite: New, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.run("backup", place)
    other = on_sqlite("other")
    with monkeypatch.context() as patched:
        patched.setattr("mvprune_service.backup.restoring.snapshot.load", lambda *_: os.close(-1))
        assert other.run("restore", place)[0] == 1
    code, told, _ = other.run("restore", place)
    assert (code, told["copied_objects"], told["owns_store"]) == (0, 0, True)


def test_a_damaged_object_of_the_store_is_repaired(server: Installation, on_sqlite: New, place: Path) -> None:
    made = server.run("backup", place)[1]
    other = on_sqlite("other")
    other.store = server.store
    key = next(entry.key for entry in server.store.list("blobs/") if entry.size == 2000)
    whole = server.store.get(key)
    server.store.put(key, b"x" * 2000)
    code, told, _ = other.run("restore", place)
    assert (code, told["repaired_objects"], told["copied_objects"]) == (0, 1, 1)
    assert server.store.get(key) == whole
    assert told["objects"] == made["objects"]


@pytest.mark.slow
def test_a_lost_database_file_is_replaced(server: Installation, place: Path) -> None:
    """The count of its commits, beside it, would stop a server that starts without it."""
    server.run("backup", place)
    file = Path(server.url.removeprefix("sqlite:///"))
    file.unlink()
    assert file.with_name(f"{file.name}.commits").exists()
    code, told, _ = server.run("restore", place)
    assert (code, told["succeeded"], told["owns_store"]) == (0, 2, False)
    server.fill(lambda load: finished(load, "c"))


@pytest.mark.slow
def test_a_backup_of_an_older_version_is_migrated(server: Installation, on_sqlite: New, place: Path) -> None:
    name = server.run("backup", place)[1]["backup"]
    file, manifest = place / "backups" / name / "database", place / "backups" / name / "manifest.json"
    with closing(Database(f"sqlite:///{file}")) as db:
        alembic.downgrade(config_for(db.engine), "0007")
    with closing(sqlite3.connect(file)) as conn:
        conn.execute("PRAGMA journal_mode = DELETE")
    told = json.loads(manifest.read_text())
    data = file.read_bytes()
    told["snapshot"] |= {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.write_text(json.dumps({**told, "revision": "0007"}))
    assert server.run("backup", place, "--check")[0] == 0
    other = on_sqlite("other")
    code, restored, _ = other.run("restore", place)
    assert (code, restored["succeeded"]) == (0, 2)
    assert rows(other.url) == rows(server.url)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key_of(Mark("other", 1, "t")), "collection/flag", "../key", "blobs/../x"])
def test_a_manifest_cannot_name_other_files(server: Installation, on_sqlite: New, place: Path, key: str) -> None:
    name = server.run("backup", place)[1]["backup"]
    manifest = place / "backups" / name / "manifest.json"
    told = json.loads(manifest.read_text())
    told["objects"][0]["key"] = key
    manifest.write_text(json.dumps(told))
    code, _, error = on_sqlite("other").run("restore", place)
    assert (code, "is no key of an object" in error) == (1, True)
