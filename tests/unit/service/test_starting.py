"""What keeps a server from starting is said in one line, and settings come from where the documentation says."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from pydantic_settings import SettingsError

import mvprune_migrations
from mvprune_migrations import config_for
from mvprune_service.api.access.ports import PortError, is_loopback
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.command_line import CommandFailed
from mvprune_service.commands.migrate import migrate
from mvprune_service.config import Settings
from mvprune_service.db.engine import opening
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.opening import CannotOpen, opened, prepare
from mvprune_service.secret import load_key


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"store": "ftp://x"}, r"^store must be file:///absolute/folder or .*, got 'ftp://x' \(--store URL\)$"),
        ({"store": "file:///proc/x"}, r"^file:///proc/x: No such file or directory: /proc/x \(--store URL\)$"),
        ({"executor": "ray", "ray_address": "ftp://x"}, r"^--ray-address must be http://HOST:PORT .*, got 'ftp://x'$"),
        ({"address": "127.0.0.1:99999"}, r"^--address must be HOST:PORT, .* 0 to 65535, got '127\.0\.0\.1:99999'$"),
        ({"worker_address": "1:2:3"}, r"^--worker-address must be HOST:PORT, .*\[::1\]:7070.*, got '1:2:3'$"),
        ({"metrics_address": "127.0.0.1:65536"}, r"^--metrics-address must be HOST:PORT, .*, got '127.*65536'$"),
        ({"worker_address": "0.0.0.0:0"}, r"^--worker-address must be .* this machine only, .*, got 0\.0\.0\.0:0, "),
        ({"metrics_address": "0.0.0.0:0"}, r"^--metrics-address must be .* this machine only, .*give --allow-remote "),
        ({"home": "/proc/x"}, r"^cannot use the home folder /proc/x: No such file or directory \(--home FOLDER"),
    ],
)
async def test_settings_that_cannot_be_followed(tmp_path: Path, given: dict[str, str], words: str) -> None:
    local = {"home": tmp_path / "home", "executor": "local", "address": "127.0.0.1:0", "worker_address": "127.0.0.1:0"}
    settings = Settings(**(local | given), roots=(tmp_path,))  # type: ignore[arg-type]
    with pytest.raises(StartError, match=words):
        async with Service(settings):
            pass


@pytest.mark.parametrize("taken", ["address", "worker_address", "metrics_address"])
async def test_a_port_that_is_taken_is_said_with_the_option_that_sets_it(tmp_path: Path, taken: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        here = f"127.0.0.1:{other.getsockname()[1]}"
        given = {"address": "127.0.0.1:0", "worker_address": "127.0.0.1:0", taken: here}
        settings = Settings(home=tmp_path / "home", executor="local", roots=(tmp_path,), **given)  # type: ignore[arg-type]
        option = f"--{taken.replace('_', '-')}"
        with pytest.raises(
            StartError, match=rf"^{option} must be an address .* with a free port, got {here}\b"
        ) as raised:
            async with Service(settings):
                pass
    assert {word for word in str(raised.value).split() if word.startswith("--")} == {option}


async def test_a_store_that_was_used_is_not_made_anew(tmp_path: Path) -> None:
    """Its disk may not be mounted."""
    store = tmp_path / "mount/store"
    settings = Settings(
        home=tmp_path / "home",
        executor="local",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        roots=(tmp_path,),
        store=store.as_uri(),
    )
    async with Service(settings):
        pass
    (tmp_path / "mount").rename(tmp_path / "unmounted")
    async with Service(settings):  # there was nothing in it
        pass
    with closing(sqlite3.connect(tmp_path / "home/mvprune.sqlite")) as db, db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(
            "INSERT INTO artifacts (project, sha256, job_uid, attempt, manifest_bytes, manifest, create_us)"
            " VALUES ('p', 'a', 'j', 1, 1, '{}', 1)"
        )
    (tmp_path / "mount").rename(tmp_path / "mounted-late")
    with pytest.raises(StartError, match=r"/mount/store is no store: is its disk mounted\? \(`mkdir -p .*\.staging`"):
        async with Service(settings):
            pass
    assert not store.exists()
    (tmp_path / "mounted-late").rename(tmp_path / "mount")
    async with Service(settings):
        pass


@pytest.mark.parametrize(
    "address",
    [*(f"127.0.0.1:{port}" for port in ("", "x", "-1", "65536", "099999", "²")), "1:2:3", "::1:7070", "[::1]", ":1"],
)
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(PortError, match=r"^--here must be HOST:PORT, such as 127.* or \[::1\]:7070, .*, got '.*'$"):
        is_loopback(address, "--here")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.0.0.2:7070", "localhost:65535", "[::1]:1"])
def test_addresses_of_this_machine_alone(address: str) -> None:
    assert is_loopback(address, "--here")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:1", "localhost.example:1", "10.0.0.1:7070", "127.0.0.1.x:1"])
def test_addresses_that_others_can_reach(address: str) -> None:
    assert not is_loopback(address, "--here")


def test_the_settings_file_lies_in_the_home_folder_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    for folder, seconds in ((home, 7), (other, 8)):
        folder.mkdir()
        (folder / "mvprune.toml").write_text(f"lease_seconds = {seconds}\n")
    monkeypatch.setenv("MVPRUNE_HOME", str(other))
    assert Settings().lease_seconds == 8
    assert Settings(home=home).lease_seconds == 7
    assert Settings(home=tmp_path).lease_seconds == 15
    assert Settings(home=home, lease_seconds=9).lease_seconds == 9
    monkeypatch.setenv("MVPRUNE_LEASE_SECONDS", "10")
    assert Settings(home=home).lease_seconds == 10


@pytest.mark.parametrize("content", [b"lease_seconds = \n", b"\xff\xfe"])
def test_a_settings_file_that_is_none_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mvprune.toml").write_bytes(content)
    with pytest.raises(SettingsError, match=rf"^{tmp_path}/mvprune\.toml cannot be read \("):
        Settings(home=tmp_path)
    with pytest.raises(CommandFailed, match=r"mvprune\.toml cannot be read \("):
        migrate(home=str(tmp_path))


def test_another_programs_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    with closing(sqlite3.connect(file)) as theirs:
        theirs.execute("CREATE TABLE customers (id INTEGER)")
    before = file.read_bytes()
    for migrating in (False, True):
        with (
            opened(f"sqlite:///{file}") as db,
            pytest.raises(CannotOpen, match="no revision, but tables: customers; it seems to be another program's"),
        ):
            prepare(db, migrate=migrating)
    with closing(sqlite3.connect(file)) as theirs:
        assert theirs.execute("SELECT name FROM sqlite_master").fetchall() == [("customers",)]
    assert len(file.read_bytes()) == len(before)


def test_a_database_that_cannot_be_copied_is_not_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path / 'x.sqlite'}"
    with closing(Database(url)) as db:
        command.upgrade(config_for(db.engine), "0002")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(mvprune_migrations, "backup", full)
    with pytest.raises(CannotOpen, match="cannot be copied, so it is not migrated: database or disk is full"):
        opening.migrate(url)
    with closing(Database(url)) as db:
        assert mvprune_migrations.state(db.engine).found == "0002"


def test_a_key_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mvprune_service.secret.secrets.token_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        load_key(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_server_that_nobody_reads_goes_on() -> None:
    code = "from mvprune_service.assembly.running import _say; _say('it serves'); _say('it stops')"
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
