"""PostgreSQL behind a pooler."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url
from sqlalchemy.pool import StaticPool

from mvprune_service.db.engine.opening import CannotOpen, opened
from mvprune_service.db.engine.postgres import shares_sessions

from ..neighbours import PostgresServer
from ..waiting import until

PORT = 6432  # of a socket in a folder of its own
PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


@pytest.fixture
def url(postgres: PostgresServer) -> Iterator[str]:
    made = postgres.create()
    yield made
    postgres.drop(made)


@pytest.fixture
def pooled(url: str) -> Iterator[Callable[[str], str]]:
    """Starts PgBouncer with some settings; returns the URL of the database behind it."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed (apt-get install pgbouncer)")
    server = make_url(url)
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="mvprune-pgbouncer-") as folder:
        Path(folder).chmod(0o777)  # it does not run as root

        def start(settings: str) -> str:
            config = Path(folder) / "pgbouncer.ini"
            config.write_text(
                f"[databases]\n* = host={server.query['host']} user={server.username}\n"
                f"[pgbouncer]\nlisten_addr =\nlisten_port = {PORT}\nunix_socket_dir = {folder}\nauth_type = any\n"
                f"{settings}\n"
            )
            owner = Path(str(server.query["host"])).owner()
            user = ["-u", owner if owner != "root" else "nobody"] if os.geteuid() == 0 else []
            started.append(subprocess.Popen([str(PROGRAM), "-q", *user, str(config)], stderr=subprocess.DEVNULL))
            until((Path(folder) / f".s.PGSQL.{PORT}").exists, "PgBouncer listens")
            return f"postgresql+psycopg://{server.username}@/{server.database}?host={folder}&port={PORT}"

        yield start
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    "settings",
    [
        "pool_mode = transaction",
        "pool_mode = transaction\ndefault_pool_size = 1",
        "pool_mode = transaction\nserver_round_robin = 1\nmin_pool_size = 3",
    ],
)
def test_a_pooler_that_shares_sessions_is_refused(pooled: Callable[[str], str], settings: str) -> None:
    address = pooled(settings)
    with pytest.raises(CannotOpen, match=r"a session of its own, got a pooler .* pool_mode = session"), opened(address):
        pass


def test_a_pooler_without_transactions_is_refused(pooled: Callable[[str], str]) -> None:
    address = pooled("pool_mode = statement")
    with pytest.raises(CannotOpen, match="transaction blocks not allowed in statement pooling mode"), opened(address):
        pass


def test_a_pooler_that_keeps_sessions_is_used(pooled: Callable[[str], str]) -> None:
    with opened(pooled("pool_mode = session\ndefault_pool_size = 50")) as db:
        assert not shares_sessions(db.engine)


def test_a_database_without_a_pooler_is_used(url: str) -> None:
    with opened(url) as db:
        assert not shares_sessions(db.engine)


def test_two_connections_with_one_session_are_noticed(url: str) -> None:
    engine = create_engine(url, poolclass=StaticPool)  # as a pooler with one session
    try:
        assert shares_sessions(engine)
    finally:
        engine.dispose()
