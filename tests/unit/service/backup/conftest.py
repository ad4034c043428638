"""A server's database, store and home folder with a few jobs, to be backed up."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.integration.load import Load

from mvprune.cli import main
from mvprune_service.secret import load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore


class Installation:
    """A database, a store and a home folder."""

    def __init__(self, url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self.home = folder / "home"
        self.folder = folder
        self.store: BlobStore = open_store((folder / "store").as_uri())
        self._capsys = capsys

    def fill(self, *work: Callable[[Load], Coroutine[Any, Any, None]]) -> None:
        """Does something to the database as a server does."""
        self.home.mkdir(parents=True, exist_ok=True)
        load_key(self.home / "key")
        load = Load(self.url, self.store, self.folder / "work")

        async def run() -> None:
            await load.collect()
            for one in work:
                await one(load)

        try:
            asyncio.run(run())
        finally:
            load.db.close()

    def run(self, command: str, place: Path, *words: str) -> tuple[int, Any, str]:
        """The exit code of a command, its answer, and what it says on stderr."""
        settings = ["--home", str(self.home), "--database-url", self.url, "--store", self.store.url]
        code = main(["server", command, str(place), *settings, *words, "-o", "json"])
        told = self._capsys.readouterr()
        return code, json.loads(told.out) if told.out else None, told.err


async def finished(load: Load, *job_ids: str) -> None:
    """Jobs that have SUCCEEDED."""
    for job_id in job_ids:
        await load.finish(await load.start(job_id))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "backups"


@pytest.fixture
def new(
    new_database: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Installation]:
    """Makes installations with a database of each kind, by name: "server" has its schema, others have not."""
    return lambda name: _made(new_database(empty=name != "server"), tmp_path / name, capsys)


@pytest.fixture
def on_sqlite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[str], Installation]:
    """Makes installations with an empty SQLite, by name: for what does not depend on the database."""
    return lambda name: _made(f"sqlite:///{tmp_path / f'{name}.sqlite'}", tmp_path / name, capsys)


def _made(url: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Installation:
    folder.mkdir()
    return Installation(url, folder, capsys)


@pytest.fixture
def server(on_sqlite: Callable[[str], Installation], sqlite_template: Path, tmp_path: Path) -> Installation:
    """An installation with the finished jobs a and b."""
    shutil.copyfile(sqlite_template, tmp_path / "server.sqlite")
    made = on_sqlite("server")
    made.fill(lambda load: finished(load, "a", "b"))
    return made
