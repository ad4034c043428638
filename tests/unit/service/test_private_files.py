"""Files in the server's home folder: a symbolic link in their place is refused, and its target is not touched."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command

from mvprune_migrations import backup, config_for, state
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.integrity import accept_loss
from mvprune_service.executors.base import Launch, LaunchRefused
from mvprune_service.executors.embedded_ray import EmbeddedRay
from mvprune_service.executors.local import LocalExecutor
from mvprune_service.lock import CannotLock, lock
from mvprune_service.private_files import open_private

LINK = "must be a regular file, got a symbolic link"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    file = tmp_path / "theirs"
    file.write_text("theirs")
    return file


def test_a_file_is_for_its_owner_only(tmp_path: Path) -> None:
    with open_private(tmp_path / "file", "wb") as file:
        file.write(b"x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [None, 0o644, 0o660])
def test_a_database_is_for_its_owner_only_wherever_it_lies(
    tmp_path: Path, mode: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one that another umask or another version has left, with what it had not yet checkpointed."""
    before = os.umask(0o022)
    try:
        file = tmp_path / "jobs.sqlite"
        if mode is not None:
            with closing(sqlite3.connect(file)) as conn:
                conn.execute("PRAGMA journal_mode = WAL")
                conn.execute("CREATE TABLE t (x)")
                for each in tmp_path.iterdir():
                    each.chmod(mode)
                _check_private(file)
        else:
            _check_private(file)
    finally:
        os.umask(before)
    assert ("could be read by other users" in caplog.text) is (mode is not None)


def _check_private(file: Path) -> None:
    with closing(Database(f"sqlite:///{file}")) as db:
        command.upgrade(config_for(db.engine), "0012")
        (file.parent / "jobs.sqlite-wal").touch()
        found = backup(db.engine, state(db.engine))
        accept_loss(file)
        assert found is not None
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert {"jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm", "jobs.sqlite.0012"} <= modes.keys()
    assert any(name.startswith("jobs.sqlite-wal.") for name in modes)
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize("exists", [True, False])
def test_a_lock_that_is_a_link_is_refused(tmp_path: Path, theirs: Path, exists: bool) -> None:
    target = theirs if exists else tmp_path / "nothing"
    (tmp_path / "lock").symlink_to(target)
    with pytest.raises(CannotLock, match=rf"^cannot lock {tmp_path}/lock: {LINK}$"):
        lock(tmp_path / "lock", "in use")
    assert target.exists() == exists


def test_a_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    with lock(tmp_path / "lock", "in use"), pytest.raises(CannotLock, match=r"^in use$"):
        lock(tmp_path / "lock", "in use")
    lock(tmp_path / "lock", "in use").close()


def test_a_log_of_a_local_process_that_is_a_link_is_refused(tmp_path: Path, theirs: Path) -> None:
    executor = LocalExecutor(tmp_path / "processes")
    (tmp_path / "processes" / "logs" / "a.log").symlink_to(theirs)
    with pytest.raises(LaunchRefused, match=rf"^cannot start a process: {tmp_path}/processes/logs/a\.log: {LINK}$"):
        executor.submit(Launch("a", ("true",), {}))
    assert theirs.read_text() == "theirs"
    assert executor.list("a").live == ()


def test_a_log_of_ray_that_is_a_link_is_refused(tmp_path: Path, theirs: Path) -> None:
    (tmp_path / "ray.log").symlink_to(theirs)
    ray = EmbeddedRay(tmp_path)
    with pytest.raises(OSError, match=LINK):
        ray.start()
    ray.stop()
    assert theirs.read_text() == "theirs"
