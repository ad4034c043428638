"""The start of a server: a list of steps, and what is left of it when one fails."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from mvprune_service.api.access.threads import Threads
from mvprune_service.assembly.resources import Resources
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import Sequence, Step
from mvprune_service.config import Settings

from ...neighbours import free_ports

NAMES = ("one", "two", "three")


class Broken(Exception):
    """What a step raises here."""


def steps(done: list[str], fails: str = "") -> list[Step]:
    def of(name: str) -> Callable[[], AbstractAsyncContextManager[None]]:
        @asynccontextmanager
        async def run() -> AsyncIterator[None]:
            if name == fails:
                raise Broken
            done.append(f"+{name}")
            try:
                yield
            finally:
                done.append(f"-{name}")

        return run

    return [Step(name, of(name)) for name in NAMES]


async def test_steps_start_in_order_and_stop_in_reverse() -> None:
    done: list[str] = []
    async with Sequence(*steps(done)):
        assert done == ["+one", "+two", "+three"]
    assert done[3:] == ["-three", "-two", "-one"]


@pytest.mark.parametrize(
    ("fails", "expected"),
    [("one", []), ("two", ["+one", "-one"]), ("three", ["+one", "+two", "-two", "-one"])],
)
async def test_a_step_that_fails_stops_those_before_it(fails: str, expected: list[str]) -> None:
    done: list[str] = []
    with pytest.raises(Broken):
        await Sequence(*steps(done, fails)).__aenter__()
    assert done == expected


async def test_a_stop_that_fails_does_not_keep_the_others_from_stopping() -> None:
    done: list[str] = []

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        yield
        raise Broken

    with pytest.raises(Broken):
        async with Sequence(*steps(done), Step("last", run)):
            pass
    assert done[3:] == ["-three", "-two", "-one"]


@asynccontextmanager
async def broken(self: object) -> AsyncIterator[None]:
    raise Broken
    yield


@pytest.mark.parametrize(
    ("owner", "step"),
    [
        *((Resources, f"_{name}") for name in ("bind_ports", "make_operator_token", "open_executor")),
        *((Service, f"_{name}") for name in ("answer_calls", "run_loops", "report_health", "serve_metrics")),
        (Service, "_write_status"),
    ],
)
async def test_a_start_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Lock, database and ports are free: the next start in the same process succeeds."""
    address, worker_address = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = Settings(
        home=tmp_path / "home",
        executor="local",
        address=address,
        worker_address=worker_address,
        roots=(tmp_path,),
    )
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, broken)
        with pytest.raises(Broken):
            async with Service(settings):
                pass
    assert not (tmp_path / "home" / "server.json").exists()
    async with Service(settings):
        assert (tmp_path / "home" / "server.json").exists()
    assert not (tmp_path / "home" / "server.json").exists()


async def test_a_stop_ends_the_threads_of_every_component(tmp_path: Path) -> None:
    addresses = (f"127.0.0.1:{port}" for port in free_ports(2))
    settings = Settings(
        home=tmp_path / "home",
        executor="local",
        address=next(addresses),
        worker_address=next(addresses),
        roots=(tmp_path,),
    )
    before = set(threading.enumerate())
    async with Service(settings) as service:
        owners = [close.__self__ for close in service.components.closing]  # type: ignore[attr-defined]
        threads = [owner._threads for owner in owners if isinstance(owner._threads, Threads)]
        for each in threads:
            await each.run(int)
        began = _new_pools(before)
        assert began >= {"artifacts", "catalog", "lost-chunks", "submit", "sweep", "uploads", "db-read"}
        slow = asyncio.ensure_future(threads[0].run(time.sleep, 0.5))
        await asyncio.sleep(0.1)
    assert slow.done(), "what runs is waited for"
    assert _new_pools(before) == set()


def _new_pools(before: set[threading.Thread]) -> set[str]:
    """The pools that have threads now, but for the event loop's; a thread of gRPC is in none."""
    names = (thread.name for thread in set(threading.enumerate()) - before)
    return {name.rpartition("_")[0] for name in names if name[-1].isdigit()} - {"asyncio"}
