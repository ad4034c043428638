"""A connection between workers and server that drops, delays, hangs and resets."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from .conftest import ROUNDS
from .harness import Load, Server
from .invariants import check
from .proxy import Proxy


@pytest.mark.timeout(600)
def test_workers_behind_a_bad_connection(tmp_path: Path) -> None:
    server = Server(tmp_path)
    source = random.Random(0)
    with Proxy(server.worker_address) as proxy:
        try:
            server.start(environment={"MVPRUNE_WORKER_TARGET": proxy.address})
            with Load(server) as load:
                end = time.monotonic() + 20 * ROUNDS
                while time.monotonic() < end:
                    trouble = source.choice((proxy.reset, proxy.refuse, "silent", "delay"))
                    if callable(trouble):
                        trouble()
                    proxy.silent = trouble == "silent"
                    proxy.delay = 0.3 if trouble == "delay" else 0.0
                    time.sleep(source.choice((0.2, 1.0, 2.5)))
                    proxy.silent = proxy.refusing = False
                    time.sleep(0.5)
                proxy.delay = 0.0
                load.stop()
            assert check(server, load.records, timeout=180)["SUCCEEDED"] > 0
            assert proxy.cuts > 0
        finally:
            server.kill()
