"""Probes, problems and health, each by itself."""

from __future__ import annotations

import asyncio
import sqlite3
from functools import partial

import pytest
from grpc_health.v1 import health_pb2
from sqlalchemy.exc import OperationalError
from tests.waiting import PATIENCE, until_true

from mvprune_service.api.access.errors import as_api_error
from mvprune_service.changes import Changes
from mvprune_service.control.loop import Loop, Loops
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.observability.health import LIVENESS, PATIENCE_SECONDS, Health
from mvprune_service.observability.probes import Probe, Problems, words

from .conftest import TestClock


async def test_a_probe_asks_one_question_at_a_time(clock: TestClock) -> None:
    asked, answer, problems = 0, asyncio.Event(), Problems(clock)

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await answer.wait()
        return asked

    probe = Probe("store", ask, problems, timeout=0.01, fresh=0)
    assert [await probe.get(), await probe.get()] == [None, None]
    assert "no answer within 0.01 s" in problems.texts()["store"]
    since = problems.texts()["store"].partition("since")[2]
    clock.pass_seconds(60)
    await probe.get()
    assert problems.texts()["store"].partition("since")[2] == since
    assert round(problems.seconds("store")) == 60
    assert asked == 1
    answer.set()
    probe._timeout = PATIENCE
    assert await probe.get() == 2
    assert problems.texts() == {}
    assert await asyncio.gather(probe.get(), probe.get()) == [3, 3]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_answer_that_came_too_late_is_not_given_to_the_next(clock: TestClock, waits: bool) -> None:
    questions: list[asyncio.Future[int]] = []
    problems = Problems(clock)

    async def ask() -> int:
        questions.append(asyncio.get_running_loop().create_future())
        return await questions[-1]

    probe = Probe("store", ask, problems, timeout=0.01)
    assert await probe.get() is None
    probe._timeout = PATIENCE
    if not waits:
        questions[0].set_exception(OSError("away"))
        await asyncio.sleep(0.01)
    next_one = asyncio.create_task(probe.get())
    if waits:
        await asyncio.sleep(0)
        questions[0].set_result(6)
    await until_true(lambda: len(questions) == 2)
    questions[1].set_result(7)
    assert await next_one == 7
    assert problems.texts() == {}


async def test_problems_are_told_without_secrets(clock: TestClock) -> None:
    async def ask() -> int:
        raise OSError("cannot reach s3://u:s3cr3t@bucket\nmore")

    problems = Problems(clock)
    assert await Probe("store", ask, problems).get() is None
    assert problems.texts() == {
        "store": "OSError: cannot reach s3://u:[redacted]@bucket (since 2027-01-15 08:00:00 UTC)"
    }


@pytest.mark.parametrize("broken", ["reads", "writes"])
async def test_health_follows_the_database(clock: TestClock, broken: str) -> None:
    away = False

    async def ask(part: str) -> bool:
        if away and part == broken:
            raise OSError("away")
        return True

    problems = Problems(clock)
    probes = [Probe(part, partial(ask, part), problems, fresh=0) for part in ("reads", "writes")]
    health = Health(["a", "b"], probes, problems)

    async def states(*names: str) -> set[str]:
        answers = [
            await health.servicer.Check(health_pb2.HealthCheckRequest(service=name), None)
            for name in names or ("", "a", "b")
        ]
        return {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) for answer in answers}

    await health.start()
    assert await states() == {"NOT_SERVING"}
    await health.step()
    assert await states() == {"SERVING"}
    away = True
    await health.step()
    assert await states() == {"SERVING"}, "a hiccup turns nobody away"
    clock.pass_seconds(PATIENCE_SECONDS)
    await health.step()
    assert await states() == {"NOT_SERVING"}
    assert await states(LIVENESS) == {"SERVING"}, "a restart would not help"
    away = False
    await health.step()
    assert await states() == {"SERVING"}
    await health.drain()
    await health.step()
    assert await states() == {"NOT_SERVING"}
    assert await states(LIVENESS) == {"SERVING"}


async def test_a_loop_that_fails_is_a_problem_until_it_does_not() -> None:
    problems, failing, stepped = Problems(), True, asyncio.Event()

    async def step() -> None:
        stepped.set()
        if failing:
            raise RuntimeError("no luck")

    loops = Loops(problems)
    changes = Changes()
    loops.start(Loop("finalizer", step, changes, 60))
    await stepped.wait()
    await asyncio.sleep(0)
    assert problems.texts()["finalizer"].startswith("RuntimeError: no luck")
    failing = False
    async with asyncio.timeout(PATIENCE):
        while problems.texts():
            changes.announce(None)
            await asyncio.sleep(0.01)
    await loops.stop()


async def test_a_loop_that_failed_does_not_wait_for_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mvprune_service.control.loop._RETRY_SECONDS", 0.01)
    problems, failures = Problems(), iter([RuntimeError("no luck")])
    recovered = asyncio.Event()

    async def step() -> None:
        for failure in failures:
            raise failure
        recovered.set()

    loops = Loops(problems)
    loops.start(Loop("janitor", step, Changes(), 3600))
    await asyncio.wait_for(recovered.wait(), PATIENCE)
    await asyncio.sleep(0)
    assert problems.texts() == {}
    await loops.stop()


async def test_why_the_database_is_away_is_told(db: Database, caplog: pytest.LogCaptureFixture) -> None:
    def full(tx: Tx) -> None:
        raise OperationalError("INSERT", None, sqlite3.OperationalError("database or disk is full"))

    with pytest.raises(DatabaseUnavailable) as caught:
        await db.write(full)
    assert words(caught.value) == "OperationalError: database or disk is full"
    as_api_error(caught.value)
    assert caplog.messages == ["database unavailable: OperationalError: database or disk is full"]


def test_a_clock_that_is_set_back_hides_no_outage(clock: TestClock) -> None:
    problems = Problems(clock)
    problems.report("database", OSError("away"))
    for seconds in (-3600, PATIENCE_SECONDS):
        clock.pass_seconds(seconds)
        problems.report("database", OSError("away"))
    assert problems.seconds("database") >= PATIENCE_SECONDS
