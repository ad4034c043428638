"""Logs that move from the database to the store, and what may happen on the way."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import func, select
from tests.logged import Logged, lines
from tests.unit.service.clocks import clock as clock  # nearer than the one that the other tests share
from tests.unit.service.conftest import Jobs, ScriptedExecutor, TestClock

from mvprune_service.api.access.errors import ApiError
from mvprune_service.clock import SECOND
from mvprune_service.control.collector import GRACE_US
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.log_mover import LogMover
from mvprune_service.control.ownership import Ownership, key_of, read_marks
from mvprune_service.db import attempt_logs, lifecycle, overview, records
from mvprune_service.db.attempt_logs import CHUNK_BYTES, KEPT_BYTES, LONG_BYTES
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.installation import Mark
from mvprune_service.db.tables.attempts import LONG_LOGS
from mvprune_service.ids import JobName
from mvprune_service.observability.probes import Problems
from mvprune_service.stores.base import BlobStore, StoreUnavailable

LOG = lines(3_000)
assert LONG_BYTES < len(LOG) < CHUNK_BYTES


@pytest.fixture
def mover(db: Database, store: BlobStore, clock: TestClock) -> LogMover:
    return LogMover(db, store, clock)


@pytest.fixture
async def logged(db: Database, store: BlobStore, jobs: Jobs) -> Logged:
    return await Logged.start(db, store, jobs)


def objects(store: BlobStore) -> list[str]:
    """The chunks in the store, by their keys."""
    return sorted(entry.key for entry in store.list("attempts/"))


async def long_logs(db: Database) -> int:
    return await db.read(lambda conn: conn.execute(select(func.count()).select_from(LONG_LOGS)).scalar_one())


async def test_a_log_that_runs_moves_by_whole_chunks(mover: LogMover, logged: Logged, store: BlobStore) -> None:
    text = lines(60_000)
    assert len(text) > CHUNK_BYTES + KEPT_BYTES
    await logged.append(text[: CHUNK_BYTES + KEPT_BYTES - 1])
    await mover.step()
    assert objects(store) == []
    await logged.append(text[logged.sent : logged.sent + 1])
    await mover.step()
    (uid,) = await logged.chunk_uids()
    assert objects(store) == [f"attempts/{logged.attempt_uid}/logs/{uid}"]
    assert gzip.decompress(store.get(objects(store)[0])) == text[:CHUNK_BYTES]
    assert await logged.rows() == text[CHUNK_BYTES : logged.sent]
    await logged.append(text[logged.sent :])
    assert await logged.read() == text


@pytest.mark.parametrize("size", [0, KEPT_BYTES, LONG_BYTES, LONG_BYTES + 1, len(LOG)])
async def test_the_tail_of_a_log_that_has_ended_stays(db: Database, mover: LogMover, logged: Logged, size: int) -> None:
    for start in range(0, size, 5000):
        await logged.append(LOG[start : min(size, start + 5000)])
    await mover.step()
    assert await logged.rows() == LOG[:size], "it runs"
    await logged.end()
    assert (await db.read(overview.overview, ())).waiting_logs == (size > LONG_BYTES)
    await mover.step()
    assert await logged.rows() == (LOG[size - KEPT_BYTES : size] if size > LONG_BYTES else LOG[:size])
    assert await long_logs(db) == 0
    assert await logged.read() == LOG[:size]


async def test_a_short_rest_after_a_chunk_stays(db: Database, mover: LogMover, logged: Logged) -> None:
    text = lines(60_000)[: CHUNK_BYTES + LONG_BYTES]
    await logged.append(text[: CHUNK_BYTES + KEPT_BYTES])
    await mover.step()
    await logged.append(text[logged.sent :])
    await logged.end()
    await mover.step()
    assert len(await logged.chunk_uids()) == 1
    assert await logged.rows() == text[CHUNK_BYTES:]
    assert await long_logs(db) == 0


async def test_rows_stay_while_the_store_is_away(
    mover: LogMover,
    logged: Logged,
    store: BlobStore,
    clock: TestClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = lines(100_000)[: CHUNK_BYTES + len(LOG)]
    await logged.append(text[: CHUNK_BYTES + KEPT_BYTES])
    await mover.step()
    await logged.append(text[logged.sent :])
    await logged.end()
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    clock.pass_seconds(61)
    await mover.step()
    assert "logs wait for the store" in caplog.text
    assert await logged.rows() == text[CHUNK_BYTES:]
    assert await logged.read(CHUNK_BYTES) == text[CHUNK_BYTES:], "the store is not needed for it"
    with pytest.raises(StoreUnavailable):
        await logged.read()
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    await mover.step()
    assert await logged.rows() == text[-KEPT_BYTES:]
    assert await logged.read() == text


async def test_a_put_that_fails_is_repeated_after_the_claim(
    db: Database, mover: LogMover, logged: Logged, store: BlobStore, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logged.append(LOG)
    await logged.end()

    def put(*_: Any, **__: Any) -> bool:
        raise StoreUnavailable("full")

    await Ownership(db, store).check()  # marks the store
    with monkeypatch.context() as patched:
        patched.setattr(store, "put", put)
        await mover.step()
    assert await logged.rows() == LOG
    await mover.step()
    assert await logged.rows() == LOG, "the claim is not over"
    clock.pass_seconds(61)
    await mover.step()
    assert await logged.rows() == LOG[-KEPT_BYTES:]


async def test_a_server_that_ends_between_the_chunk_and_its_rows_loses_nothing(
    db: Database, store: BlobStore, logged: Logged, clock: TestClock, executor: ScriptedExecutor
) -> None:
    await logged.append(LOG)
    await logged.end()
    write = db.write

    class Killed(Exception):
        pass

    async def ends(work: Callable[..., Any], *given: Any) -> Any:
        if work is attempt_logs.record_log_chunk:
            raise Killed
        return await write(work, *given)

    db.write = ends  # type: ignore[method-assign, assignment]
    with pytest.raises(Killed):
        await LogMover(db, store, clock).step()
    db.write = write  # type: ignore[method-assign]
    (left,) = objects(store)
    assert await logged.read() == LOG
    await LogMover(db, store, clock).step()
    assert objects(store) == [left], "no other server moves it meanwhile"
    clock.pass_seconds(61)
    await LogMover(db, store, clock).step()
    assert await logged.rows() == LOG[-KEPT_BYTES:]
    assert await logged.read() == LOG
    assert len(objects(store)) == 2
    await collect(db, store, executor, clock)
    (uid,) = await logged.chunk_uids()
    assert objects(store) == [f"attempts/{logged.attempt_uid}/logs/{uid}"]
    assert await logged.read() == LOG


async def test_a_chunk_that_comes_after_its_claim_is_not_recorded(
    db: Database, store: BlobStore, logged: Logged, clock: TestClock
) -> None:
    await logged.append(LOG)
    await logged.end()
    (late,) = await db.write(attempt_logs.claim_logs, 8, 60 * SECOND)
    assert await db.write(attempt_logs.claim_logs, 8, 60 * SECOND) == []
    packed = attempt_logs.Packed("late", len(LOG) - KEPT_BYTES, 1, "x")
    clock.pass_seconds(61)
    assert not await db.write(attempt_logs.record_log_chunk, late, packed), "nobody else has it, and it may be garbage"
    (other,) = await db.write(attempt_logs.claim_logs, 8, 3600 * SECOND)
    assert not await db.write(attempt_logs.record_log_chunk, late, packed)
    assert await logged.rows() == LOG
    assert await db.write(attempt_logs.record_log_chunk, other, packed)
    assert not await db.write(attempt_logs.record_log_chunk, other, packed)
    assert await logged.chunk_uids() == ["late"]


async def test_servers_share_the_logs(db: Database, store: BlobStore, jobs: Jobs, clock: TestClock) -> None:
    many = [await Logged.start(db, store, jobs, f"j{number}") for number in range(20)]
    for number, logged in enumerate(many):
        await logged.append(LOG[number:])
        await logged.end()
    await Ownership(db, store).check()
    await asyncio.gather(*(LogMover(db, store, clock).step() for _ in range(3)))
    assert len(objects(store)) == len(many), "no chunk was written twice"
    for number, logged in enumerate(many):
        assert await logged.rows() == LOG[-KEPT_BYTES:]
        assert await logged.read() == LOG[number:]


async def test_nothing_moves_into_a_store_of_another_database(
    db: Database, store: BlobStore, mover: LogMover, logged: Logged
) -> None:
    await logged.append(LOG)
    await logged.end()
    mark = Mark("another", 1, "t")
    store.put(key_of(mark), b"")
    await mover.step()
    assert (objects(store), read_marks(store)) == ([], [mark])
    assert await logged.rows() == await logged.read() == LOG


async def test_the_output_of_a_lost_worker_goes_to_the_end_of_a_log_that_has_moved(
    db: Database, mover: LogMover, logged: Logged
) -> None:
    await logged.append(LOG)
    await logged.end()
    await mover.step()
    rest = LOG * 2
    tails: list[bytes] = []

    def unsent(tail: bytes) -> bytes:
        tails.append(tail)
        return rest

    await db.write(attempt_logs.append_output, logged.attempt_uid, 64 << 10, unsent)
    assert tails == [LOG[-KEPT_BYTES:]]
    assert await logged.read() == LOG + rest
    await mover.step()
    assert await logged.rows() == rest[-KEPT_BYTES:]
    assert await logged.read() == LOG + rest
    assert await long_logs(db) == 0


async def test_what_an_attempt_logs_beyond_its_limit_does_not_wait_for_ever(
    db: Database, mover: LogMover, logged: Logged, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_logs, "LOG_CAP", 20_000)
    for start in range(0, len(LOG), 20_000):
        await logged.append(LOG[start : start + 20_000])
    assert await logged.read() == LOG[:20_000]
    await logged.end()
    for _ in range(2):
        await mover.step()
        clock.pass_seconds(61)
    assert await logged.read() == LOG[:20_000]
    assert await long_logs(db) == 0


async def test_a_reader_is_told_what_the_store_has_lost(mover: LogMover, logged: Logged, store: BlobStore) -> None:
    await logged.append(LOG)
    await logged.end()
    await mover.step()
    (key,) = objects(store)
    packed, end = store.get(key), len(LOG) - KEPT_BYTES
    for content, why in ((None, "is missing"), (packed[:-1] + b"x", "has other content"), (packed + b"x", None)):
        store.delete(key) if content is None else store.put(key, content)
        if why is None:
            assert await logged.read() == LOG
            continue
        with pytest.raises(
            ApiError, match=f"lost the bytes 0 to {end} of the log: {key} {why}.*from byte {end}"
        ) as lost:
            await logged.read(17)
        assert (lost.value.code, lost.value.reason) == (grpc.StatusCode.DATA_LOSS, "LOG_LOST")
        assert await logged.read(end) == LOG[end:]


async def test_the_chunks_of_a_deleted_job_are_deleted(
    db: Database, store: BlobStore, jobs: Jobs, mover: LogMover, clock: TestClock, executor: ScriptedExecutor
) -> None:
    both = [await Logged.start(db, store, jobs, job_id) for job_id in ("a", "b")]
    for logged in both:
        await logged.append(LOG)
        await logged.end()
    await mover.step()
    assert len(objects(store)) == 2

    def delete(tx: Any) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", "a"))
        assert job is not None
        lifecycle.remove(tx, job)

    await db.write(delete)
    assert await both[0].chunk_uids() == []
    await collect(db, store, executor, clock)
    assert [key.split("/")[1] for key in objects(store)] == [both[1].attempt_uid]
    assert await both[1].read() == LOG


async def test_a_job_that_is_deleted_while_its_log_moves(
    db: Database, store: BlobStore, logged: Logged, clock: TestClock
) -> None:
    await logged.append(LOG)
    await logged.end()
    (claimed,) = await db.write(attempt_logs.claim_logs, 8, 60 * SECOND)
    job = await db.read(records.job_named, JobName("p", "a"))
    assert job is not None
    await db.write(lambda tx: lifecycle.remove(tx, job))
    assert await db.read(attempt_logs.next_chunk, claimed) == b""
    packed = attempt_logs.Packed("u", 1, 1, "x")
    assert not await db.write(attempt_logs.record_log_chunk, claimed, packed)
    assert await long_logs(db) == 0


async def test_a_database_with_a_chunk_needs_its_store(
    db: Database, mover: LogMover, logged: Logged, store: BlobStore
) -> None:
    assert not await db.read(overview.has_stored)
    await logged.append(LOG)
    await logged.end()
    await mover.step()
    assert await db.read(overview.has_stored)


async def collect(db: Database, store: BlobStore, executor: ScriptedExecutor, clock: TestClock) -> None:
    """A whole pass of garbage collection, a long time later."""
    clock.now += 2 * GRACE_US
    days = {"request_days": 7, "checkpoint_days": 7, "upload_days": 7, "quarantine_days": 0}
    janitor = Janitor(db, executor, store, Problems(), server="a", clock=clock, **days)  # type: ignore[arg-type]
    for _ in range(20):
        await janitor.step()
