"""A database that is restarted every few seconds, and writes that happen and then report a time-out."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ..neighbours import PostgresServer
from .conftest import ROUNDS
from .counts import COUNTS
from .harness import Load, Server
from .invariants import check
from .test_server_killed import BOUNDARIES


@pytest.mark.timeout(600)
def test_postgresql_is_restarted_under_load(tmp_path: Path, postgres: PostgresServer) -> None:
    server = Server(tmp_path, database=postgres.create(empty=True))
    try:
        server.start()
        with Load(server) as load:
            for _ in range(max(1, round(5 * ROUNDS))):
                time.sleep(3)
                postgres.stop()
                time.sleep(1)
                postgres.start()
                COUNTS["restarts of PostgreSQL"] += 1
                load.check()
            load.stop()
        assert check(server, load.records, timeout=180)["SUCCEEDED"] > 0
    finally:
        server.kill()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", ["before_commit", "after_commit"])
def test_writes_report_a_time_out(tmp_path: Path, new_database: Callable[..., str], side: str) -> None:
    server = Server(tmp_path, database=new_database(empty=True))
    try:
        server.start(",".join(f"{write}.{side}=error:3" for write in BOUNDARIES.values()))
        with Load(server) as load:
            time.sleep(10 * ROUNDS)
            load.stop()
        assert check(server, load.records)["SUCCEEDED"] > 0
    finally:
        server.kill()
