"""The quota of the queue: exact, and on SQLite counted seldom."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import event
from tests.unit.service.conftest import Jobs

from mvprune.v1 import job_pb2
from mvprune_service.db import lifecycle, projects, quotas
from mvprune_service.db.engine.database import Database, Tx


async def admitted(db: Database, quota: quotas.QueueQuota, jobs: Jobs, wanted: int, start: int = 0) -> int:
    """How many of `wanted` new jobs are let into the queue."""
    for number in range(start, start + wanted):
        try:
            await db.read(quota.check, "p")
        except quotas.QueueFull:
            return number - start
        await jobs.create(f"j{number}")
    return wanted


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 10, 41])
async def test_the_queue_takes_exactly_what_it_may(db: Database, jobs: Jobs, limit: int) -> None:
    assert await admitted(db, quotas.QueueQuota(limit), jobs, limit + 2) == limit


async def test_the_projects_own_quota_counts_and_a_change_is_seen_at_once(db: Database, jobs: Jobs) -> None:
    quota = quotas.QueueQuota(40)
    assert await admitted(db, quota, jobs, 5) == 5  # more may come before the next count
    await db.write(projects.set_quotas, "p", max_queued_jobs=5, max_running_gpus=None, max_upload_bytes=None)
    assert await admitted(db, quota, jobs, 1, start=5) == 0
    await db.read(quota.check, "q")
    await db.write(projects.set_quotas, "p", max_queued_jobs=7, max_running_gpus=None, max_upload_bytes=None)
    assert await admitted(db, quota, jobs, 9, start=5) == 2
    await db.write(projects.set_quotas, "p", max_queued_jobs=None, max_running_gpus=None, max_upload_bytes=None)
    assert await admitted(db, quota, jobs, 1, start=7) == 1


async def test_those_who_write_at_once_do_not_exceed_it(db: Database) -> None:
    replicas = 3 if db.engine.dialect.name == "postgresql" else 1
    servers = [quotas.QueueQuota(10) for _ in range(replicas)]
    new = lifecycle.NewJob("p", "", job_pb2.CompressionSpec(), job_pb2.ExecutionPolicy(), creator="test")

    async def submit(number: int) -> bool:
        def work(tx: Tx) -> None:
            servers[number % replicas].check(tx.conn, "p")
            lifecycle.create(tx, replace(new, job_id=f"j{number}"), actor="test")

        try:
            await db.write(work)
        except quotas.QueueFull:
            return False
        return True

    assert sum(await asyncio.gather(*map(submit, range(30)))) == 10


async def test_on_sqlite_a_long_queue_is_counted_seldom(db: Database, jobs: Jobs) -> None:
    counts = []

    @event.listens_for(db.engine, "before_cursor_execute")
    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if "count(" in statement:
            counts.append(statement)

    assert await admitted(db, quotas.QueueQuota(100), jobs, 110) == 100
    if db.engine.dialect.name == "sqlite":
        assert 10 <= len(counts) <= 25
