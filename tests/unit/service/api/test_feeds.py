"""Watching: every event once and in order, whatever comes in between, and one read for all who watch."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.unit.service.beating import beat
from tests.unit.service.conftest import Jobs
from tests.waiting import PATIENCE, until_true

from mvprune.v1 import job_pb2
from mvprune_service.api import feeds
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.log_reader import LogReader
from mvprune_service.changes import Changes
from mvprune_service.clock import SECOND
from mvprune_service.db import attempt_logs, leases, lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.leases import Fence
from mvprune_service.domain.failures import FailureReason
from mvprune_service.domain.placement import Reserved
from mvprune_service.domain.retries import Failure
from mvprune_service.ids import JobName


class Watched:
    """A servicer on a database that counts what is read."""

    def __init__(self, db: Database) -> None:
        self.reads: Counter[str] = Counter()
        changes = Changes()
        db.on_commit = changes.announce
        self._read = db.read
        db.read = self._count  # type: ignore[method-assign]
        self.feeds = Feeds(db, changes)
        self.servicer = JobServicer(db, changes, self.feeds, None, LogReader(db, None))  # type: ignore[arg-type]

    async def _count(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.reads[work.__name__] += 1
        return await self._read(work, *args, **kwargs)

    @property
    def watchers(self) -> int:
        return sum(feed.watchers for feed, _ in self.feeds._feeds.values())

    def watch(self, after: int = 0, job_id: str = "a") -> AsyncIterator[job_pb2.WatchJobResponse]:
        request = job_pb2.WatchJobRequest(name=f"projects/p/jobs/{job_id}", after_sequence=after)
        return self.servicer.WatchJob(request, None)  # type: ignore[arg-type]

    async def follow(self, after: int = 0) -> list[int]:
        """The sequences of all events that a watcher is told, until the job is done."""
        told: list[int] = []
        async for response in self.watch(after):
            told += [event.sequence for event in response.events]
            assert response.sequence == (told[-1] if told else after)
            if response.done:
                return told
        raise AssertionError("the stream ended without done")


@pytest.fixture
def watched(db: Database) -> Watched:
    return Watched(db)


async def attempt(db: Database, jobs: Jobs) -> Fence:
    job = await jobs.get()
    await db.write(leases.schedule, job.uid, Reserved(1, 0, 0), executor="x", start_timeout_us=SECOND)
    live = await jobs.live()
    fence = Fence(live.name, live.attempt.fencing_token)
    await db.write(leases.claim, fence, runner_id="r", node="n", lease_us=SECOND)
    return fence


async def test_a_hundred_watchers_cost_no_more_reads_than_one(
    db: Database, jobs: Jobs, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_RECHECK_SECONDS", 3600.0)  # a look without a reason is a read too
    await jobs.create(max_attempts=1)
    watchers = [asyncio.create_task(watched.follow()) for _ in range(100)]
    await until_true(lambda: watched.watchers == 100 and watched.reads["events_of"] == 100)
    watched.reads.clear()
    fence = await attempt(db, jobs)
    for step in range(5):
        await db.write(beat, fence, progress=b"\x10" + bytes([step]), lease_us=SECOND)
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.NAN_LOSS), actor="worker")
    told = await asyncio.gather(*watchers)
    assert told == [[1, 2, 3, 4]] * 100
    # 8 commits: at most two reads each, and one look more
    assert watched.reads["job_by_uid"] + watched.reads["events_of"] <= 2 * 8 + 1
    assert watched.watchers == 0


async def test_a_watcher_that_comes_late_or_back_is_told_all_that_it_lacks(
    db: Database, jobs: Jobs, watched: Watched
) -> None:
    await jobs.create(max_attempts=100)
    first = asyncio.create_task(watched.follow())
    for _ in range(80):  # more events than a feed keeps or a page holds
        fence = await attempt(db, jobs)
        await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST, lost=True), actor="watchdog")
    last = (await jobs.get()).last_sequence
    assert last == 241
    late = asyncio.create_task(watched.follow())
    back = asyncio.create_task(watched.follow(after=100))
    ahead = asyncio.create_task(watched.follow(after=last))
    await until_true(lambda: watched.watchers == 4)
    await jobs.cancel()
    assert await first == await late == list(range(1, 243))
    assert await back == list(range(101, 243))
    assert await ahead == [242]
    for after in (0, 200):  # it has ended already
        assert await watched.follow(after) == list(range(after + 1, 243))


async def test_a_cursor_after_the_newest_event_is_of_another_job(db: Database, jobs: Jobs, watched: Watched) -> None:
    await jobs.create()
    await jobs.cancel()
    assert await watched.follow(after=2) == []
    with pytest.raises(ApiError, match="after_sequence: must be 0 to 2, the newest event, got 3"):
        await watched.follow(after=3)


async def test_streams_end_when_the_job_is_deleted_or_was_never_there(
    db: Database, jobs: Jobs, watched: Watched
) -> None:
    await jobs.create()
    await jobs.cancel()
    stream = watched.watch(job_id="a")
    assert (await anext(stream)).done

    def remove(tx: Tx) -> None:
        job = lifecycle.lock_job_named(tx, JobName("p", "b"))
        assert job is not None
        tx.conn.execute(lifecycle.delete(lifecycle.JOBS).where(lifecycle.JOBS.c.uid == job.uid))
        tx.changed.add(job.uid)

    await jobs.create("b")
    stream = watched.watch(job_id="b")
    await anext(stream)
    await db.write(remove)
    with pytest.raises(ApiError, match="there is no projects/p/jobs/b"):
        await anext(stream)
    with pytest.raises(ApiError, match="there is no projects/p/jobs/c"):
        await anext(watched.watch(job_id="c"))


async def test_watching_a_job_that_is_being_deleted_ends(db: Database, jobs: Jobs, watched: Watched) -> None:
    await jobs.create()
    await jobs.cancel()
    look_up = db.look_up

    async def look_up_and_delete(*given: Any) -> Any:
        db.look_up = look_up  # type: ignore[method-assign]
        job = await look_up(*given)
        await db.write(lambda tx: lifecycle.remove(tx, job))
        return job

    db.look_up = look_up_and_delete  # type: ignore[method-assign, assignment]
    with pytest.raises(ApiError, match="there is no projects/p/jobs/a"):
        await asyncio.wait_for(anext(watched.watch()), PATIENCE)


async def test_a_watcher_whose_job_is_deleted_as_it_ends_is_told_so_once(
    db: Database, jobs: Jobs, watched: Watched
) -> None:
    await jobs.create()
    stream = watched.watch()
    await anext(stream)
    fence = await attempt(db, jobs)
    while (await anext(stream)).sequence < 3:
        pass
    look_up = db.look_up

    async def look_up_and_delete(*given: Any) -> Any:
        job = await look_up(*given)
        if job is not None:
            await db.write(lambda tx: lifecycle.remove(tx, job))
        return job

    db.look_up = look_up_and_delete  # type: ignore[method-assign, assignment]
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.NAN_LOSS), actor="worker")
    with pytest.raises(ApiError, match="there is no projects/p/jobs/a"):
        await asyncio.wait_for(anext(stream), PATIENCE)


async def test_a_log_ends_with_what_its_attempt_wrote_last(db: Database, jobs: Jobs, watched: Watched) -> None:
    """Between two looks, at the log and at the job."""
    await jobs.create(max_attempts=1)
    fence = await attempt(db, jobs)
    read = db.read

    def end(tx: Tx) -> None:
        _, row = leases.fenced(tx, fence)
        attempt_logs.append_log(tx, row, 0, b"last words")
        leases.fail_attempt(tx, fence, Failure(FailureReason.NAN_LOSS), actor="worker")

    async def read_before_the_end(work: Callable[..., Any], *given: Any) -> Any:
        found = await read(work, *given)
        if work is attempt_logs.read_log and not found:
            db.read = read  # type: ignore[method-assign]
            await db.write(end)
        return found

    db.read = read_before_the_end  # type: ignore[method-assign, assignment]
    request = job_pb2.FollowLogsRequest(attempt="projects/p/jobs/a/attempts/1", follow=True)
    told = [response async for response in watched.servicer.FollowLogs(request, None)]  # type: ignore[arg-type]
    assert b"".join(response.data for response in told) == b"last words"
    assert [response.end for response in told] == [False, True]


async def test_a_retry_adds_nothing_to_the_log_that_is_followed(db: Database, jobs: Jobs, watched: Watched) -> None:
    await jobs.create()
    fence = await attempt(db, jobs)
    await db.write(attempt_logs.append_log, (await jobs.live()).attempt, 0, b"first")
    request = job_pb2.FollowLogsRequest(attempt="projects/p/jobs/a/attempts/-", follow=True)
    stream = watched.servicer.FollowLogs(request, None)  # type: ignore[arg-type]
    assert (await anext(stream)).data == b"first"
    await db.write(leases.fail_attempt, fence, Failure(FailureReason.WORKER_LOST), actor="worker")
    await attempt(db, jobs)
    await db.write(attempt_logs.append_log, (await jobs.live()).attempt, 0, b"the second")
    assert await anext(stream) == job_pb2.FollowLogsResponse(offset=5, end=True)


async def test_a_database_that_goes_away_ends_the_stream_with_its_error(
    db: Database, jobs: Jobs, watched: Watched
) -> None:
    await jobs.create()
    stream = watched.watch()
    await anext(stream)

    async def away(*_: Any, **__: Any) -> Awaitable[Any]:
        raise ConnectionError("away")

    keep, db.read = db.read, away  # type: ignore[method-assign, assignment]
    await jobs.cancel()
    with pytest.raises(ConnectionError):
        await anext(stream)
    db.read = keep  # type: ignore[method-assign]
    assert await watched.follow() == [1, 2]  # a new stream reads anew
