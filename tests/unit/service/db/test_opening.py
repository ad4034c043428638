"""Opening a database: what is served, what is migrated, and what is refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine, inspect, make_url, text
from tests.neighbours import PostgresServer
from tests.waiting import until

import mvprune_migrations
from mvprune.cli import main
from mvprune_migrations import HEAD, config_for
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings
from mvprune_service.db import overview
from mvprune_service.db.engine import opening
from mvprune_service.db.engine.database import Database, sqlite_url
from mvprune_service.db.engine.opening import CannotOpen, opened, prepare
from mvprune_service.secret import load_key

OLD = "0002"


@pytest.fixture
def old(new_database: Callable[..., str]) -> str:
    """The URL of a database that an older version made."""
    url = new_database(empty=True)
    with closing(Database(url)) as db:
        command.upgrade(config_for(db.engine), OLD)
    return url


def revision(url: str) -> str | None:
    with closing(Database(url)) as db:
        return mvprune_migrations.state(db.engine).found


def serve(url: str, *, migrate: bool = False) -> None:
    with opened(url) as db:
        prepare(db, migrate=migrate)


def test_an_empty_database_gets_the_newest_schema(new_database: Callable[..., str]) -> None:
    url = new_database(empty=True)
    serve(url)
    assert revision(url) == HEAD
    serve(url)


def test_an_older_versions_database_is_migrated_only_where_that_is_meant(old: str) -> None:
    with pytest.raises(CannotOpen) as caught:
        serve(old)
    assert str(caught.value) == (
        f"the database is at revision {OLD}, this version works with {HEAD}: "
        "run `mvpctl server migrate`, or start with --migrate"
    )
    assert revision(old) == OLD
    serve(old, migrate=True)
    assert revision(old) == HEAD


async def test_a_database_that_servers_use_is_not_migrated(postgres: PostgresServer) -> None:
    url = postgres.create(empty=True)
    name = make_url(url).database

    def is_served() -> bool:
        return (name,) in postgres.execute("SELECT datname FROM pg_stat_activity WHERE query LIKE 'LISTEN %'")

    with closing(Database(url)) as older:
        command.upgrade(config_for(older.engine), OLD)
        older.listen()
        until(is_served, "it serves")
        with pytest.raises(CannotOpen, match=f"servers use the database, at revision {OLD}: stop all of them before"):
            opening.migrate(url)
        with pytest.raises(CannotOpen, match="servers use the database"):
            serve(url, migrate=True)
        assert revision(url) == OLD
        seen = mvprune_migrations.state(older.engine)
    until(lambda: not is_served(), "it does not any more")
    opening.migrate(url)
    assert revision(url) == HEAD
    with closing(Database(url)) as first, closing(Database(url)) as late:
        first.listen()
        until(is_served, "the replica that migrated it serves")
        opening._upgrade(late, seen)
    postgres.drop(url)


@pytest.mark.parametrize("theirs", ["0001", HEAD, "1975ea83b712"])
@pytest.mark.parametrize("migrate", [False, True])
def test_a_database_of_another_programs_alembic_is_left_alone(
    new_database: Callable[..., str], migrate: bool, theirs: str
) -> None:
    url = new_database(empty=True)
    with closing(Database(url)) as db, db.engine.begin() as conn:
        for table in ("alembic_version (version_num VARCHAR(32))", "customers (id INTEGER)", "jobs (id INTEGER)"):
            conn.exec_driver_sql(f"CREATE TABLE {table}")
        conn.execute(text("INSERT INTO alembic_version VALUES (:theirs)"), {"theirs": theirs})
    words = f"the database is at revision {theirs} of another program, which uses Alembic too: give mvprune a database"
    with pytest.raises(CannotOpen, match=words):
        serve(url, migrate=migrate)
    with pytest.raises(CannotOpen, match=words):
        opening.migrate(url)
    with closing(Database(url)) as db, db.engine.connect() as conn:
        assert overview.schema_revision(conn) == theirs
        assert set(inspect(conn).get_table_names()) == {"alembic_version", "customers", "jobs"}


@pytest.mark.parametrize("migrate", [False, True])
def test_a_newer_versions_database_is_left_alone(new_database: Callable[..., str], migrate: bool) -> None:
    url = new_database()
    with closing(Database(url)) as db, db.engine.begin() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = 'f00d'")
    with pytest.raises(CannotOpen, match=r"f00d, made by a newer version"):
        serve(url, migrate=migrate)
    with pytest.raises(CannotOpen, match=r"f00d, made by a newer version"):
        opening.migrate(url)


def test_sqlite_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    file = tmp_path / "x.sqlite"
    with closing(Database(f"sqlite:///{file}")) as db:
        command.upgrade(config_for(db.engine), OLD)
        with db.engine.begin() as conn:
            conn.exec_driver_sql("INSERT INTO alembic_version VALUES ('mark')")
            conn.exec_driver_sql("DELETE FROM alembic_version WHERE version_num = 'mark'")
    migration = opening.migrate(f"sqlite:///{file}")
    assert migration == opening.Migration(OLD, HEAD, tmp_path / "x.sqlite.0002")
    assert migration.backup is not None
    copy = create_engine(f"sqlite:///{migration.backup}")
    assert mvprune_migrations.state(copy).found == OLD
    copy.dispose()
    assert migration.backup.stat().st_mode & 0o777 == 0o600
    assert opening.migrate(f"sqlite:///{file}") == opening.Migration(HEAD, HEAD, None)


def test_a_file_serves_one_server_whatever_its_name(tmp_path: Path) -> None:
    link = tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "x.sqlite")
    with opened(f"sqlite:///{tmp_path / 'x.sqlite'}"):
        for name in ("x.sqlite", "link.sqlite"):
            with pytest.raises(CannotOpen, match=r"another server uses the database .*x\.sqlite"):
                serve(f"sqlite:///{tmp_path / name}")
        with pytest.raises(CannotOpen, match="another server uses the database"):
            opening.migrate(f"sqlite:///{tmp_path / 'x.sqlite'}")
    serve(f"sqlite:///{tmp_path / 'x.sqlite'}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "must be sqlite:///FILE or postgresql://"),
        ("mysql://me:secret@host/x", "got one with mysql:"),
        (
            "postgresql://me:secret@host:port/x",
            "USER:PASSWORD@HOST/DATABASE, got none of them",
        ),
        ("postgresql+asyncpg://me:secret@host/x", "got one with postgresql+asyncpg:"),
        ("postgres://me:secret@host/x", "got one with postgres:; write postgresql:// in place of postgres://"),
        (
            "jdbc:postgresql://host/x",
            "got one with jdbc:postgresql:; write postgresql:// in place of jdbc:postgresql://",
        ),
        ("postgresql://me:a@secret@host/x", "in USER and PASSWORD write %40 for @"),
        ("postgresql://me:a,secret@b@127.0.0.1:9/x?connect_timeout=1", "in USER and PASSWORD write %40 for @"),
        (
            "postgresql://me:secret@a:1,b:2/x",
            "with one HOST, got a:1,b:2; for several, write @/DATABASE?host=a:1&host=",
        ),
        (
            "postgresql://me:secret@/x?host=127.0.0.1:9&host=127.0.0.1:19",
            "the database cannot be used: connection failed",
        ),
        ("sqlite://", "must be sqlite:///FILE or"),
        ("sqlite:///:memory:", "must be sqlite:///FILE or"),
        ("sqlite:////no/such/folder/x.sqlite", "the folder of the database must exist, got /no/such/folder"),
        ("postgresql://me:secret@127.0.0.1:9/x", "the database cannot be used: connection failed"),
    ],
)
def test_what_cannot_be_opened_is_said_in_one_line(url: str, words: str) -> None:
    with pytest.raises(CannotOpen) as caught:
        serve(url)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["run?1", "run%411", "run#1", "100% ü", "a&b=c@d:e"])
def test_a_database_is_in_its_folder_whatever_the_folder_is_called(tmp_path: Path, name: str) -> None:
    home = tmp_path / name
    home.mkdir()
    url = sqlite_url(home / "x.sqlite")
    serve(url)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert "x.sqlite" in {file.name for file in home.iterdir()}
    with opening.looked_at(url) as conn:
        assert conn is not None
        assert conn.execute(text("SELECT count(*) FROM jobs")).scalar() == 0
    assert Settings(home=home).database == sqlite_url(home / "mvprune.sqlite")


def test_what_is_no_database_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(CannotOpen, match="file is not a database"):
        serve(f"sqlite:///{tmp_path / 'x.sqlite'}")


def test_a_missing_driver_is_named() -> None:
    code = "import sys; sys.modules['psycopg'] = None; from mvprune_service.db.engine.opening import migrate; "
    code += "migrate('postgresql://host/x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "CannotOpen: PostgreSQL needs its driver: pip install 'mvprune[postgres]'" in done.stderr


def test_migrating_from_the_command_line(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["server", "migrate", "--database-url", old]) == 0
    assert f"from revision {OLD} to {HEAD}" in capsys.readouterr().out
    assert main(["server", "migrate", "--database-url", old]) == 0
    assert capsys.readouterr().out == f"the database is at revision {HEAD} already: nothing to do\n"
    assert main(["server", "migrate", "--database-url", old, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"from": HEAD, "to": HEAD, "backup": None}


def test_migrating_the_homes_own_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(Database(f"sqlite:///{tmp_path / 'mvprune.sqlite'}")) as db:
        command.upgrade(config_for(db.engine), OLD)
    assert main(["server", "migrate", "--home", str(tmp_path), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"from": OLD, "to": HEAD, "backup": str(tmp_path / "mvprune.sqlite.0002")}
    assert main(["server", "migrate", "--home", str(tmp_path / "nowhere")]) == 1
    assert capsys.readouterr().err == f"error: the folder of the database must exist, got {tmp_path / 'nowhere'}\n"


def test_a_standby_is_refused(postgres: PostgresServer) -> None:
    """A server that may not write, as the standby of a failover."""
    url = postgres.create(empty=True)
    postgres.execute(f"ALTER DATABASE {make_url(url).database} SET default_transaction_read_only = on")
    with pytest.raises(CannotOpen, match="read-only"):
        serve(url)
    postgres.drop(url)


async def test_a_server_that_cannot_open_its_database_says_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.sqlite'}"
    for database_url, words in (
        (url, "another server uses the database"),
        ("postgresql://me:secret@127.0.0.1:9/x", "the database cannot be used"),
    ):
        settings = Settings(home=tmp_path / "home", database_url=database_url, roots=(tmp_path,), executor="local")
        with opened(url), pytest.raises(StartError, match=words):
            async with Service(settings):
                pass


def test_replicas_that_start_together_make_one_key(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load_key, [file] * 8))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"short")
    settings = Settings(home=tmp_path / "home", key_file=file, roots=(tmp_path,), executor="local")
    with pytest.raises(StartError, match=r"^key file .*/key must hold 32 bytes or more, got 5$"):
        async with Service(settings):
            pass
