"""The harness itself, and one kill on each side of a commit: a few seconds, for every run of the tests."""

from __future__ import annotations

from pathlib import Path

from ..waiting import PATIENCE
from .harness import Load, Server
from .invariants import check


def test_a_server_that_is_killed_on_both_sides_of_a_commit(tmp_path: Path) -> None:
    server = Server(tmp_path, lease_seconds="60")
    try:
        server.start("create.before_commit=kill:2")
        with Load(server, live=1, churn=False) as load:
            assert server.wait_killed(), server.tail()
            server.start("claim.after_commit=kill:1")
            assert server.wait_killed(), server.tail()
            server.start()
            load.stop()
        assert check(server, load.records, timeout=PATIENCE)["SUCCEEDED"] >= 1
    finally:
        server.kill()
