"""Who is woken by a commit: a new job concerns those who start jobs, any other change all loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_service.changes import Changes
from mvprune_service.control.loop import Loop, Loops
from mvprune_service.db import lifecycle
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.observability.probes import Problems

SPEC = job_pb2.CompressionSpec(model="tiny-bert", task="sst2", target_density=0.1, movement={})


def create(tx: Tx, job_id: str) -> Any:
    policy = job_pb2.ExecutionPolicy(max_attempts=1)
    return lifecycle.create(tx, lifecycle.NewJob("p", job_id, SPEC, policy, creator="c"), actor="c")


@pytest.mark.parametrize(
    ("uids", "are_new", "woken"),
    [({"a"}, True, (True, False)), ({"a"}, False, (True, True)), (None, False, (True, True))],
)
def test_new_jobs_wake_only_those_who_start_jobs(
    uids: set[str] | None, are_new: bool, woken: tuple[bool, bool]
) -> None:
    changes = Changes()
    with changes.of_all() as every, changes.of_moves() as moves, changes.of_job("a") as own:
        changes.announce(uids, are_new)
        assert (every.is_set(), moves.is_set()) == woken
        assert own.is_set()


async def test_a_commit_says_whether_its_jobs_are_new(db: Database) -> None:
    heard: list[tuple[int, bool]] = []
    db.on_commit = lambda uids, are_new: heard.append((len(uids or ()), are_new))

    def create_and_note(tx: Tx, job_id: str) -> None:
        lifecycle.note(tx, create(tx, job_id), "NOTED", "c", {})

    def create_beside(tx: Tx, job_id: str) -> None:
        create(tx, job_id)
        tx.changed.add("another")

    await db.write(create, "a")
    await db.write(create_and_note, "b")
    await db.write(create_beside, "c")
    assert heard == [(1, True), (1, False), (2, False)]


async def test_commits_that_are_told_together_are_new_if_all_are(db: Database) -> None:
    heard: list[bool] = []
    db.on_commit = lambda uids, are_new: heard.append(are_new)
    mailbox = db._mailbox()
    for news in ((True, True), (True, False), (False, True)):
        for number, are_new in enumerate(news):
            mailbox.announce(db.on_commit, {str(number)}, are_new=are_new)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert heard == [True, False, False]


@pytest.mark.parametrize("starts_jobs", [True, False])
async def test_a_loop_hears_of_new_jobs_if_it_starts_them(starts_jobs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvprune_service.control.loop._SHORTEST_SECONDS", 0.0)
    steps, changes, loops = 0, Changes(), Loops(Problems())

    async def step() -> None:
        nonlocal steps
        steps += 1

    loops.start(Loop("scheduler", step, changes, 60, starts_jobs=starts_jobs))
    await asyncio.sleep(0.05)
    assert steps == 1
    changes.announce({"a"}, are_new=True)
    await asyncio.sleep(0.1)
    assert steps == (2 if starts_jobs else 1)
    changes.announce({"a"})
    await asyncio.sleep(0.1)
    assert steps == (3 if starts_jobs else 2)
    await loops.stop()
