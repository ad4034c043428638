"""Projects take turns: at threads, at places for calls, and at transactions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import grpc
import pytest

from mvprune_service.api.access import shares
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.shares import Shares
from mvprune_service.db.engine import sqlite
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.fair import OWNER, SERVER, FairQueue, FairThreads

from ...waiting import PATIENCE, until_true


def order(queue: FairQueue[str]) -> list[str]:
    return [taken[1] for taken in iter(queue.take, None)]


def test_the_next_item_is_that_of_the_owner_that_has_used_least() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.put("storm", f"s{number}")
    queue.put("calm", "c0")
    assert order(queue) == ["s0", "c0", "s1", "s2", "s3"]
    for number in range(2):
        queue.put("storm", f"s{number}")
        queue.put("calm", f"c{number}")
    queue.charge("storm", 5.0)
    assert order(queue) == ["c0", "c1", "s0", "s1"], "what took long counts more"


def test_an_owner_that_was_away_has_no_credit() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.put("late", "l0")
    assert order(queue) == ["l0"]
    for number in range(9):
        queue.put("storm", f"s{number}")
        assert queue.take() == ("storm", f"s{number}")
        queue.charge("storm", 1.0)
    for number in range(3):
        queue.put("storm", f"s{number}")
        queue.put("late", f"l{number}")
    found = []
    while taken := queue.take():
        found.append(taken[1])
        queue.charge(taken[0], 1.0)
    assert found.index("s1") < found.index("l2"), "it does not go first until it has used as much"


def test_an_item_that_is_put_back_is_the_next_one_of_its_owner() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a", "b"):
        queue.put("p", item)
    taken = queue.take()
    assert taken == ("p", "a")
    queue.put_back(*taken)
    assert order(queue) == ["a", "b"]


def test_owners_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvprune_service.fair._REMEMBERED", 3)
    queue: FairQueue[str] = FairQueue()
    for number in range(20):
        queue.put(f"p{number}", "")
        queue.take()
        queue.charge(f"p{number}", 0.0)
    assert len(queue._used) <= 4


def test_an_owner_has_some_of_the_threads_and_others_the_rest() -> None:
    threads = FairThreads("test", 3, 2)
    go, began = threading.Event(), []

    def work(name: str) -> str:
        began.append(name)
        assert go.wait(PATIENCE)
        return name

    def start(owner: str, name: str) -> object:
        return threads.submit(owner, lambda: work(name))

    storm = [start("storm", f"s{number}") for number in range(5)]
    calm = threads.submit("calm", lambda: "answered")
    assert calm.result(PATIENCE) == "answered", "while the other project's functions wait"
    assert sorted(began) == ["s0", "s1"]
    go.set()
    threads.shutdown()
    assert [one.result(0) for one in storm] == [f"s{number}" for number in range(5)]  # type: ignore[attr-defined]


def test_functions_that_wait_are_cancelled_or_run_when_the_threads_end() -> None:
    for cancel in (True, False):
        threads = FairThreads("test", 1, 1)
        go = threading.Event()
        first = threads.submit("p", lambda go=go: go.wait(PATIENCE))
        waiting = threads.submit("p", lambda: 1)
        ending = threading.Thread(target=threads.shutdown, kwargs={"cancel_waiting": cancel})
        ending.start()
        if cancel:
            while not waiting.cancelled():
                pass
        go.set()
        ending.join()
        assert first.result(0)
        assert cancel or waiting.result(0) == 1


def test_the_error_of_a_function_is_its_callers() -> None:
    threads = FairThreads("test", 1, 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit("p", lambda: 1 // 0).result(PATIENCE)
    assert threads.submit(SERVER, lambda: 1).result(PATIENCE) == 1
    threads.shutdown()


async def test_places_go_to_the_projects_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    places, began, go = Shares(2, 1), [], asyncio.Event()

    async def call(owner: str, name: str) -> None:
        async with places.place(owner):
            began.append(name)
            await go.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(call("storm", f"s{number}"))
        await asyncio.sleep(0)
        group.create_task(call("calm", "c0"))
        await asyncio.sleep(0)
        assert began == ["s0", "c0"]
        monkeypatch.setattr(shares, "_WAITING", 2)
        with pytest.raises(ApiError) as caught:
            async with places.place("storm"):
                pass
        assert (caught.value.code, caught.value.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
        assert caught.value.retry_seconds
        go.set()
    assert began == ["s0", "c0", "s1", "s2"]
    assert (places._held, places._waiting, places._total) == ({}, {}, 0)


async def test_a_call_that_ends_while_it_waits_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "_WAIT_SECONDS", 0.02)
    places = Shares(1, 1)
    async with places.place("p"):
        with pytest.raises(ApiError, match=r"that wait up to 0\.02 s"):
            async with places.place("p"):
                pass
        gone = asyncio.create_task(places._wait("q"))
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert (places._held, places._waiting, places._total) == ({}, {}, 0)
    async with places.place("q"):
        pass


@pytest.fixture
def as_owner(db: Database) -> Callable[..., asyncio.Task[object]]:
    """Begins a write of a project."""

    def write(owner: str, work: Callable[[Tx], object]) -> asyncio.Task[object]:
        token = OWNER.set(owner)
        try:
            return asyncio.create_task(db.write(work))
        finally:
            OWNER.reset(token)

    return write


async def test_the_writes_of_a_project_wait_for_their_turn(
    db: Database, as_owner: Callable[..., asyncio.Task[object]]
) -> None:
    """While one project's writes wait for each other, another's is done."""
    go, done, began = threading.Event(), [], threading.Event()

    def slow(_: Tx) -> None:
        began.set()
        assert go.wait(PATIENCE)

    def quick(name: str) -> Callable[[Tx], object]:
        return lambda _: done.append(name)

    first = as_owner("storm", slow)
    await until_true(began.is_set, "it began")
    on_postgres = db.engine.dialect.name == "postgresql"
    more = [as_owner("storm", slow if on_postgres else quick(f"s{number}")) for number in range(20)]
    await asyncio.sleep(0)
    calm = as_owner("calm", quick("calm"))
    await asyncio.sleep(0)
    if on_postgres:  # it has threads left
        await asyncio.wait_for(calm, PATIENCE)
    go.set()
    await asyncio.gather(first, calm, *more)
    assert done[0] == "calm", "twenty writes were there before"


@pytest.mark.parametrize("new_database", ["sqlite"], indirect=True)
async def test_no_other_project_waits_for_the_commit_of_a_long_write(
    db: Database, as_owner: Callable[..., asyncio.Task[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an owner whose last write took long, the next one has a commit of its own."""
    groups: list[list[str]] = []
    transact = sqlite._GroupWriter._transact

    def noted(writer: sqlite._GroupWriter, group: list[sqlite._Item]) -> int:
        count = transact(writer, group)
        groups.append([owner for owner, _ in group[:count]])
        return count

    monkeypatch.setattr(sqlite._GroupWriter, "_transact", noted)
    monkeypatch.setattr(sqlite, "_LONG", 0.0)
    await as_owner("storm", lambda _: None)
    monkeypatch.setattr(sqlite, "_LONG", 60.0)
    go = threading.Event()
    holding = as_owner("server", lambda _: go.wait(PATIENCE))
    await asyncio.sleep(0.05)
    writes = [as_owner(owner, lambda _: None) for owner in ("storm", "calm", "still", "storm")]
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(holding, *writes)
    assert ["calm", "still"] in [sorted(group) for group in groups]
    assert [group for group in groups if "storm" in group] == [["storm"]] * 3
