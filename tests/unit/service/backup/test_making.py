"""`mvpctl server backup`: what a backup has, what it does not copy again, and what it says about damage."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest
from sqlalchemy import select
from tests.integration.load import Load
from tests.waiting import until

from mvprune.sources.uploads import File, Kind, digest
from mvprune_service.backup.archive import Archive
from mvprune_service.control.ownership import Ownership
from mvprune_service.db import uploads
from mvprune_service.db.tables.attempts import CHECKPOINTS
from mvprune_service.db.uploads import NewUpload
from mvprune_service.ids import UploadName
from mvprune_service.stores.base import BlobStore
from mvprune_service.stores.holds import HOLDS, Holds, hold
from mvprune_service.stores.layout import upload_key

from .conftest import Installation, finished


def contents(place: Path, name: str) -> dict[str, str]:
    """SHA-256 of the objects of a backup, by key."""
    manifest = json.loads((place / "backups" / name / "manifest.json").read_text())
    return {one["key"]: one["sha256"] for one in manifest["objects"]}


@pytest.mark.slow
def test_a_second_backup_copies_only_what_is_new(server: Installation, place: Path) -> None:
    _, first, _ = server.run("backup", place)
    assert (first["jobs"], first["succeeded"], first["artifacts"], first["problems"]) == (2, 2, 2, [])
    server.fill(lambda load: finished(load, "c"))
    code, second, error = server.run("backup", place)
    assert code == 0
    new = set(contents(place, second["backup"]).values()) - set(contents(place, first["backup"]).values())
    assert second["copied_objects"] == len(new) > 0
    assert list(Archive(str(place), create=False).names().values()) == [True, True]
    assert "reading the database …" in error


def test_a_backup_has_the_chunks_that_clients_have_sent(server: Installation, place: Path) -> None:
    sent, announced = (hashlib.sha256(content).hexdigest() for content in (b"{}", b"[]"))

    async def send(load: Load) -> None:
        for chunk, is_sent in ((sent, True), (announced, False)):
            files = [File("config.json", 2, (chunk,))]
            name = UploadName("default", digest(files))
            new = NewUpload(name, Kind.MODEL, "my-model", files, "local")
            await load.db.write(lambda tx, new=new: uploads.create(tx, new, uploads.Limits(1 << 30, 1000)))
            if is_sent:
                chunks = list((await load.db.read(uploads.chunks_of, name)).values())
                server.store.put(upload_key(chunks[0].uid), b"{}")
                await load.db.write(uploads.mark_ready, name, chunks)

    server.fill(send)
    code, made, _ = server.run("backup", place)
    assert (code, made["problems"]) == (0, [])
    kept = {sha256 for key, sha256 in contents(place, made["backup"]).items() if key.startswith("uploads/")}
    assert kept == {sent}


@pytest.mark.slow
def test_only_the_owner_can_read_a_backup(server: Installation, place: Path) -> None:
    server.run("backup", place)
    files = [path for path in place.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*") if path.is_dir()} == {0o700}
    assert (server.home / "key").read_bytes() in {path.read_bytes() for path in files}


@pytest.mark.slow
def test_an_interrupted_backup_is_incomplete_and_the_next_one_goes_on(
    server: Installation, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "finish", lambda self, contents: os.close(-1))  # the disk is full, for example
        code, _, error = server.run("backup", place)
    assert (code, "Bad file descriptor" in error) == (1, True)
    assert list(server.store.list(HOLDS)) == []
    (name,) = Archive(str(place), create=False).names()
    code, _, error = server.run("backup", place, "--check")
    assert (code, f"has no complete backup; incomplete: {name}" in error) == (1, True)
    assert server.run("backup", place, "--check", "--backup", name)[2].count("incomplete, as it has no manifest") == 1
    code, made, _ = server.run("backup", place)
    assert (code, made["copied_objects"]) == (0, 0), "the objects are there"
    code, found, _ = server.run("backup", place, "--check")
    assert (code, found["incomplete"]) == (0, [name])


@pytest.mark.slow
def test_the_newest_backups_are_kept_with_their_objects(server: Installation, place: Path) -> None:
    first = server.run("backup", place)[1]["backup"]
    for entry in list(server.store.list("attempts/")):
        server.store.delete(entry.key)
    server.fill(lambda load: finished(load, "c"))
    code, made, _ = server.run("backup", place, "--keep", "1")
    assert (code, made["deleted_backups"]) == (0, 1)
    assert Archive(str(place), create=False).names() == {made["backup"]: True}
    assert first != made["backup"]
    objects = {path.name for path in (place / "objects").rglob("*") if path.is_file()}
    assert objects == set(contents(place, made["backup"]).values())
    assert server.run("backup", place, "--check")[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_check_finds_damage(server: Installation, place: Path, damage: str) -> None:
    made = server.run("backup", place)[1]
    code, found, _ = server.run("backup", place, "--check")
    assert (code, found["problems"], found["objects"]) == (0, [], made["objects"])
    file = next(path for path in (place / "objects").rglob("*") if path.is_file() and path.stat().st_size == 2000)
    file.write_bytes(b"x" * 2000) if damage == "changed" else file.unlink()
    code, found, _ = server.run("backup", place, "--check")
    assert code == 1
    (problem,) = found["problems"]
    assert problem.startswith(f"objects/{file.name[:2]}/{file.name}: ")


@pytest.mark.slow
def test_what_the_store_has_lost_is_named_and_the_rest_is_backed_up(server: Installation, place: Path) -> None:
    lost = next(entry.key for entry in server.store.list("blobs/") if entry.size == 2000)
    server.store.delete(lost)
    code, made, _ = server.run("backup", place)
    assert code == 1
    (problem,) = made["problems"]
    assert problem.startswith("artifact ")
    assert problem.endswith("is missing")
    server.url, server.home = f"sqlite:///{server.folder / 'other.sqlite'}", server.folder / "other"
    code, told, _ = server.run("restore", place)
    assert (code, told["problems"], told["succeeded"]) == (1, [problem], 2)


def test_what_cannot_be_backed_up_is_one_line(server: Installation, place: Path) -> None:
    for words, told in (
        (("--store", (server.folder / "nowhere").as_uri()), "is no store: is its disk mounted?"),
        (("--key-file", str(server.folder / "none")), "the server's key must be in "),
        (("--database-url", "postgresql://me:s3cr3t@127.0.0.1:9/x"), "the database cannot be used: connection"),
        (("--keep", "0"), "--keep must be a number from 1, got '0'"),
    ):
        code, _, error = server.run("backup", place, *words)
        assert code in (1, 2)
        assert told in error
        assert "s3cr3t" not in error
    code, _, error = server.run("backup", Path(server.folder) / "store" / "backups")
    assert (code, "the backup must be in another place than the store" in error) == (1, True)


def test_nothing_is_deleted_while_a_backup_is_made(server: Installation) -> None:
    """The janitor would delete the checkpoints of SUCCEEDED jobs at once."""

    async def collect_in_vain(load: Load) -> None:
        before = {entry.key for entry in server.store.list("attempts/")}
        assert any("/checkpoints/" in key for key in before)
        with hold(server.store):
            assert Ownership(load.db, server.store).is_held()
            await load.collect()
            assert {entry.key for entry in server.store.list("attempts/")} == before
            assert await load.db.read(lambda conn: conn.execute(select(CHECKPOINTS)).all()) != []
        await load.collect()
        assert not any("/checkpoints/" in entry.key for entry in server.store.list("attempts/"))

    async def restart(load: Load) -> None:
        await finished(load, "c")

    server.fill(restart, collect_in_vain)


def test_a_hold_is_renewed_and_one_that_is_not_is_removed(store: BlobStore) -> None:
    now = [0.0]
    holds = Holds(store, lambda: now[0])
    assert not holds.any()
    with hold(store, renew_seconds=0.01) as key:
        assert holds.any()
        now[0] += 1000
        modified = next(iter(store.list(HOLDS))).modified_us
        until(lambda: next(iter(store.list(HOLDS))).modified_us > modified)
        assert holds.any(), "it was renewed"
    assert not holds.any()
    store.put(key, b"")  # of a process that was killed
    assert holds.any()
    now[0] += 1000
    assert not holds.any()
    assert list(store.list(HOLDS)) == []
