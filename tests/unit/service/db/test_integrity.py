"""An SQLite file that is damaged, or has lost commits that were acknowledged, is refused and left as it is."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from mvprune_migrations import config_for
from mvprune_service.db.engine import integrity, opening
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.integrity import Count, Witness
from mvprune_service.db.engine.opening import CannotOpen, opened, prepare

WAL_HEADER, FRAME_HEADER, PAGE = 32, 24, 4096
# Commits a number of times, says how often it was answered, and dies without closing anything.
WRITER = """
import asyncio, os, sys
from sqlalchemy import text
from mvprune_service.db.engine.opening import opened, prepare

def add(tx, number):
    tx.conn.execute(text("INSERT INTO projects (project) VALUES (:p)"), {"p": f"p{number}"})

async def main(db):
    for number in range(int(sys.argv[2])):
        await db.write(add, number)
        print(number, flush=True)
    os.kill(os.getpid(), 9)

with opened(sys.argv[1]) as db:
    prepare(db, migrate=False)
    asyncio.run(main(db))
"""


def write_and_die(file: Path, commits: int = 40) -> int:
    """How many commits were acknowledged by a process that was killed then."""
    done = subprocess.run(
        [sys.executable, "-c", WRITER, f"sqlite:///{file}", str(commits)], stdout=subprocess.PIPE, check=False
    )
    assert done.returncode == -signal.SIGKILL
    return len(done.stdout.split())


def serve(file: Path) -> int:
    """Opens a database as a server does; how many rows it has."""
    with opened(f"sqlite:///{file}") as db:
        prepare(db, migrate=False)
        with db.engine.connect() as conn:
            return int(conn.execute(text("SELECT count(*) FROM projects")).scalar_one())


def wal(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def flip(file: Path, offset: int) -> None:
    content = bytearray(file.read_bytes())
    content[offset] ^= 0x10
    file.write_bytes(content)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose commits are in its WAL only; tests take copies."""
    file = tmp_path_factory.mktemp("killed") / "x.sqlite"
    assert write_and_die(file) == 40
    return file


@pytest.fixture
def killed(whole: Path, tmp_path: Path) -> Path:
    return copied(whole, tmp_path)


def copied(file: Path, folder: Path) -> Path:
    """A copy of a database, with its WAL and its witness."""
    for path in (file, wal(file), Witness(file).path):
        shutil.copyfile(path, folder / path.name)
    return folder / file.name


def test_a_server_that_was_killed_starts_again(killed: Path) -> None:
    assert serve(killed) == 40
    assert serve(killed) == 40


@pytest.mark.parametrize("place", ["content", "frame header", "last frame"])
def test_a_flipped_byte_in_the_wal_is_refused_and_kept(killed: Path, place: str) -> None:
    frame = FRAME_HEADER + PAGE
    frames = (wal(killed).stat().st_size - WAL_HEADER) // frame
    offset = {
        "content": frames // 2 * frame + 100,
        "frame header": frames // 2 * frame,
        "last frame": (frames - 1) * frame,
    }
    flip(wal(killed), WAL_HEADER + offset[place] + (0 if place == "frame header" else FRAME_HEADER))
    before = {path: path.read_bytes() for path in (killed, wal(killed))}
    for _ in range(2):
        with pytest.raises(CannotOpen) as caught:
            serve(killed)
        assert f"the database {killed} has lost commits that were acknowledged: " in str(caught.value)
        assert "`mvpctl server adopt-store`" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in before} == before, "what is there is evidence"


def test_any_flipped_byte_of_the_wal_loses_nothing_in_silence(killed: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    size = wal(killed).stat().st_size
    refusals: list[str] = []
    for number in range(12):
        (tmp_path / str(number)).mkdir()
        copy = copied(killed, tmp_path / str(number))
        flip(wal(copy), rng.randrange(size))
        damaged = wal(copy).read_bytes()
        try:
            rows = serve(copy)
        except CannotOpen as error:
            refusals.append(str(error))
            rows, kept = 40, wal(copy).read_bytes()
            assert kept == damaged
        assert rows == 40
    assert len(refusals) > 6
    assert all("lost commits" in refusal or "missing or empty" in refusal for refusal in refusals)


@pytest.mark.parametrize("offset", [0, WAL_HEADER + 3])
def test_a_wal_that_lost_its_beginning_with_the_schema_is_refused(killed: Path, offset: int) -> None:
    flip(wal(killed), offset)
    before = wal(killed).read_bytes()
    with pytest.raises(CannotOpen, match=r"is missing or empty; it had \d+ commits"):
        serve(killed)
    assert wal(killed).read_bytes() == before


def test_a_wal_that_is_gone_is_noticed(killed: Path) -> None:
    serve(killed)
    assert write_more(killed) > 40
    wal(killed).unlink()
    with pytest.raises(CannotOpen, match="has lost commits"):
        serve(killed)


def write_more(file: Path) -> int:
    """Some more commits, by a process that was killed then."""
    code = WRITER.replace('f"p{number}"', 'f"q{number}"')
    subprocess.run([sys.executable, "-c", code, f"sqlite:///{file}", "5"], stdout=subprocess.DEVNULL, check=False)
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as conn:
        return int(conn.execute("SELECT count(*) FROM projects").fetchone()[0])


def test_a_damaged_page_is_refused(killed: Path) -> None:
    serve(killed)
    with closing(sqlite3.connect(killed)) as conn:
        (page,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ix_jobs_state'").fetchone()
    content = bytearray(killed.read_bytes())
    content[(page - 1) * PAGE : page * PAGE] = bytes(range(256)) * (PAGE // 256)
    killed.write_bytes(content)
    (killed.parent / "x.sqlite.0003").touch()
    with pytest.raises(CannotOpen) as caught:
        serve(killed)
    assert f"the database {killed} is damaged (" in str(caught.value)
    assert str(caught.value).endswith("has the steps (made by `mvpctl server migrate`: x.sqlite.0003)")
    assert integrity.deep_findings(killed)
    assert killed.read_bytes() == content


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_a_database_that_is_gone_is_noticed(killed: Path, how: str) -> None:
    serve(killed)
    killed.unlink()
    wal(killed).unlink(missing_ok=True)
    if how == "empty":
        killed.touch()
    with pytest.raises(CannotOpen, match=r"is missing or empty; it had \d+ commits"):
        serve(killed)
    assert not killed.exists() or killed.stat().st_size == 0


def test_an_older_backup_and_another_database_in_its_place_are_noticed(killed: Path, tmp_path: Path) -> None:
    serve(killed)
    backup = tmp_path / "backup"
    shutil.copyfile(killed, backup)
    assert write_more(killed) == 45
    serve(killed)
    newest = killed.read_bytes()
    shutil.copyfile(backup, killed)
    with pytest.raises(CannotOpen, match="has lost commits that were acknowledged"):
        serve(killed)
    other = tmp_path / "other.sqlite"
    assert serve(other) == 0
    shutil.copyfile(other, killed)
    with pytest.raises(CannotOpen, match="is not the one that was here before"):
        serve(killed)
    killed.write_bytes(newest)
    assert serve(killed) == 45


def test_a_backup_of_an_earlier_revision_is_noticed_once_it_is_migrated(killed: Path) -> None:
    serve(killed)
    killed.unlink()
    with closing(Database(f"sqlite:///{killed}")) as db:
        command.upgrade(config_for(db.engine), "0004")
    opening.migrate(f"sqlite:///{killed}")
    with pytest.raises(CannotOpen, match="is not the one that was here before, or is an earlier backup of it"):
        serve(killed)


@pytest.mark.parametrize("content", [b"", b"\0" * 28, b"short", None])
def test_a_witness_that_a_power_failure_took_says_nothing(killed: Path, content: bytes | None) -> None:
    witness = Witness(killed)
    if content is None:
        witness.path.unlink()
    else:
        witness.path.write_bytes(content)
    assert witness.read() is None
    assert serve(killed) == 40
    assert witness.read() is not None


def test_a_witness_that_is_older_than_the_database_is_no_alarm(killed: Path) -> None:
    witness = Witness(killed)
    said = witness.read()
    assert said is not None
    with closing(witness):
        witness.write(Count(said.uid, said.generation - 7))
    assert serve(killed) == 40


async def test_the_witness_has_the_count_before_callers_are_answered(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"

    def add(tx: Tx, number: int) -> None:
        tx.conn.execute(text("INSERT INTO projects (project) VALUES (:p)"), {"p": str(number)})
        if number % 7 == 0:
            raise ZeroDivisionError

    def count(conn: object) -> int:
        return int(conn.execute(text("SELECT generation FROM installation")).scalar_one())  # type: ignore[attr-defined]

    with opened(f"sqlite:///{file}") as db:
        prepare(db, migrate=False)
        for number in range(10):
            await asyncio.gather(*(db.write(add, 10 * number + n) for n in range(10)), return_exceptions=True)
            said = Witness(file).read()
            assert said is not None
            assert said.generation == await db.read(count)
        before = await db.read(count)
        await db.write(lambda tx: None)
        assert await db.read(count) == before, "a write that changes nothing is no commit to lose"


async def test_a_witness_that_cannot_be_written_stops_no_commit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x.sqlite.commits").symlink_to(tmp_path / "elsewhere")
    with opened(f"sqlite:///{tmp_path / 'x.sqlite'}") as db:
        prepare(db, migrate=False)
        await db.write(lambda tx: tx.conn.execute(text("INSERT INTO projects (project) VALUES ('p')")) and None)
    assert "x.sqlite.commits cannot be written, so lost commits go unnoticed: Too many levels" in caplog.text
    assert not (tmp_path / "elsewhere").exists()
