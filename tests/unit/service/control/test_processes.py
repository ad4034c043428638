"""Processes whose attempt has ended: the janitor stops them, keeps what they wrote and has the executor forget them."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from tests.unit.service.clocks import clock as clock  # nearer than the one that the other tests share
from tests.unit.service.conftest import ScriptedExecutor, TestClock
from tests.unit.service.control.cleaning import DAY, Rows
from tests.unit.service.control.cleaning import janitor as janitor
from tests.unit.service.control.cleaning import rows as rows

from mvprune_service.clock import SECOND
from mvprune_service.control.janitor import Janitor
from mvprune_service.db import attempt_logs
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.statements import fetch_one
from mvprune_service.db.tables.attempts import ATTEMPTS, AttemptRow
from mvprune_service.executors.base import Launch


async def test_orphans_are_stopped_when_seen_twice(janitor: Janitor, rows: Rows, executor: ScriptedExecutor) -> None:
    uid = await rows.job("a")
    await rows.attempt(uid, "ended", "LOST")
    await rows.attempt(uid, "live", "RUNNING", number=2)
    for ref in ("mvprune-ended", "mvprune-live", "mvprune-of-another-server"):
        executor.submit(Launch(ref, ("true",), {}))
    await janitor.step()
    assert executor.stops == []
    await janitor.step()
    assert executor.stops == ["mvprune-ended"]


async def test_the_executor_forgets_processes_whose_attempt_is_closed(
    janitor: Janitor, rows: Rows, executor: ScriptedExecutor, clock: TestClock
) -> None:
    uid = await rows.job("a")
    await rows.attempt(uid, "ended", "SUCCEEDED")
    await rows.attempt(uid, "live", "RUNNING", number=2)
    now, days_ago = clock.now, clock.now - 2 * DAY * SECOND
    executor.ended = {
        "mvprune-ended": now,
        "mvprune-live": days_ago,  # the watchdog has not seen its end yet
        "mvprune-of-a-job-that-was-deleted": days_ago,
        "mvprune-of-another-server": now,
    }
    executor.away = True
    await janitor.step()
    assert len(executor.ended) == 4, "it is tried again"
    executor.away = False
    await janitor.step()
    assert executor.ended.keys() == {"mvprune-live", "mvprune-of-another-server"}


@pytest.mark.parametrize(
    ("state", "output", "log"),
    [
        ("LOST", b"Ray: starting\nstep 1\nstep 2\nkilled", b"step 1\nstep 2\nkilled"),
        ("LOST", b"No module", b"step 1\n\n--- what the worker wrote last, read from the executor\nNo module"),
        ("LOST", b"", b"step 1\n"),
        ("SUCCEEDED", b"step 1\nstep 2\n", b"step 1\n"),  # the worker has sent all of it
    ],
)
async def test_what_a_lost_worker_wrote_is_kept(
    janitor: Janitor, rows: Rows, executor: ScriptedExecutor, db: Database, state: str, output: bytes, log: bytes
) -> None:
    uid = await rows.job("a")
    await rows.attempt(uid, "ended", state)

    def send(tx: Tx) -> None:
        attempt = fetch_one(tx.conn, AttemptRow, select(ATTEMPTS).where(ATTEMPTS.c.uid == "ended"))
        assert attempt is not None
        attempt_logs.append_log(tx, attempt, 0, b"step 1\n")

    await db.write(send)
    executor.ended, executor.outputs = {"mvprune-ended": 1}, {"mvprune-ended": output}
    await janitor.step()
    assert executor.ended == {}
    assert await db.read(attempt_logs.read_log, "ended", 0, 1000) == log
