"""A backup under load, the loss of everything, a restore, and the download of every SUCCEEDED job: both databases with
both stores."""

from __future__ import annotations

import asyncio
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from tests.waiting import until

from mvprune.cli import main
from mvprune.client.client import Client
from mvprune_service.assembly.service import Service
from mvprune_service.backup.making import make
from mvprune_service.config import Settings
from mvprune_service.secret import load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore

from .load import Load
from .servers import Data, Server

STAND_IN = Path(__file__).parents[1] / "chaos" / "stand_in"


def destroy(url: str, store: BlobStore, home: Path) -> None:
    """Loses the home folder with the key, the file of the database, and everything in the store."""
    for entry in list(store.list("")):
        store.delete(entry.key)
    if url.startswith("sqlite"):
        file = Path(str(make_url(url).database))
        for left in file.parent.glob(f"{file.name}*"):
            left.unlink()
    shutil.rmtree(home)


def settings(home: Path, url: str, store: BlobStore) -> Settings:
    local = {"executor": "local", "address": "127.0.0.1:0", "worker_address": "127.0.0.1:0", "roots": (home.parent,)}
    return Settings(home=home, database_url=url, store=store.url, **local)  # type: ignore[arg-type]


def downloads(address: str, folder: Path, project: str = "default", file: str = "weights") -> dict[str, bytes]:
    """The weights of every SUCCEEDED job of a server."""
    with Client(address, project=project) as client:
        done = [job.id for job in client.list(filter="state = SUCCEEDED")]
        return {job: (client.download(job, folder / job) / file).read_bytes() for job in done}


@pytest.mark.slow
async def test_every_succeeded_job_of_a_backup_downloads_after_the_loss_of_everything(
    new_database: Callable[..., str], store: BlobStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, home, place = new_database(), tmp_path / "home", str(tmp_path / "backups")
    if store.url.startswith("s3:"):
        place = f"{store.url}-backups"
    given = {"home": str(home), "database_url": url, "store": store.url}
    home.mkdir()
    key = load_key(home / "key")
    load = Load(url, store, tmp_path / "work")
    waited: dict[str, int] = {}

    def progress(what: str, done: int, total: int) -> None:
        """In the middle of each part of the backup, waits until two more jobs have finished."""
        if what not in waited:
            waited[what] = before = len(load.finished)
            load.wait_until_finished(before + 2)

    def back_up() -> tuple[set[str], Any]:
        with load.running():
            load.wait_until_finished(6)
            before = set(load.finished)
            return before, make(place, progress, **given)

    before, made = await asyncio.to_thread(back_up)
    load.db.close()
    assert set(waited) == {"reading the database", "copying the store"}
    assert made.problems == []
    assert made.copied_objects <= made.objects
    destroy(url, store, home)
    words = ["--home", str(home), "--database-url", url, "--store", store.url]
    if not url.startswith("sqlite"):
        words[3] = url = new_database(empty=True)
    assert await asyncio.to_thread(main, ["server", "restore", place, *words, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["newer_objects"], told["owns_store"], told["copied_objects"]) == (0, True, made.objects)
    assert (home / "key").read_bytes() == key
    assert stat.S_IMODE((home / "key").stat().st_mode) == 0o600
    assert await asyncio.to_thread(main, ["server", "check", "--files", *words]) == 0
    async with Service(settings(home, url, store)) as service:
        found = await asyncio.to_thread(downloads, service.address, tmp_path / "downloads", "p")
    assert before <= set(found) < set(load.finished), "all from before the backup, none from after it"
    assert len(found) == made.succeeded == told["succeeded"]
    assert found == {job: load.finished[job] for job in found}


@pytest.mark.slow
def test_commands_beside_a_running_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server, place = Server(tmp_path / "home"), str(tmp_path / "backups")
    data = Data.write(tmp_path)
    job = {"model": "bert-base-uncased", "task": "text-classification", "density": 0.1, "max_steps": 10, "seed": 8}
    files = {"train": str(data.train), "validation": str(data.validation)}

    def run(*words: str) -> tuple[int, Any]:
        code = main(["server", *words, "--home", str(server.home), "-o", "json"])
        told = capsys.readouterr()
        return code, json.loads(told.out) if told.out else told.err

    try:
        server.start({"PYTHONPATH": str(STAND_IN)})
        with Client(server.address) as client:
            first = client.submit(**job, **files, cpus=1).wait(timeout=240)
            assert first.state == "SUCCEEDED"
            code, made = run("backup", place)
            assert (code, made["succeeded"], made["problems"]) == (0, 1, [])
            code, told = run("restore", place)
            assert (code, f"a server uses {server.home}: stop it first" in told) == (1, True)
            second = client.submit(**job, **files, cpus=1).wait(timeout=240)
            newer = client.artifact(second).name.rpartition("/")[2]
        server.close()
        shutil.move(server.home / "mvprune.sqlite", tmp_path / "lost")
        code, told = run("restore", place)
        assert (code, told["newer_artifacts"], told["owns_store"]) == (0, [newer], False)
        server.start({"PYTHONPATH": str(STAND_IN)}, janitor_seconds=0.1, quarantine_days=0)
        assert set(downloads(server.address, tmp_path / "downloads", file="weights.bin")) == {first.id}
        until(lambda: "nothing is deleted from the store: " in server.log(), server.log)
        store = open_store((server.home / "store").as_uri())
        assert store.size(f"manifests/sha256/{newer}") is not None
    finally:
        server.close()
