"""Virtual time, seeded randomness, and no threads of the product's own, while a history runs."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import mvprune
from mvprune_service.control import loop as control_loop
from mvprune_service.fair import FairThreads
from mvprune_service.stores import layout

from .loop import Awaited, SimulatedLoop, run_blocking
from .wire import CURRENT

EPOCH = 1_800_000_000
VERSION = mvprune.__version__  # looked up once: it is read from a file


class _Here:
    """Takes the place of a pool of threads: does everything at once, on the thread that asks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Here:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Does it. What Executor.submit would catch is caught; that a process was killed is not."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, **_: Any) -> None:
        pass


@contextmanager
def simulated(loop: SimulatedLoop, seed: str) -> Iterator[None]:
    """What the product asks of the operating system is answered from the loop and the seed."""
    chance = random.Random(f"{seed}/secrets")

    def time_ns() -> int:
        process = CURRENT.get(None)
        skew_us = process.skew_us if process is not None else 0
        return EPOCH * 10**9 + round(loop.time() * 1e6) * 1000 + skew_us * 1000

    def submit(self: FairThreads, owner: str, function: Callable[[], Any]) -> Future[Any]:
        return run_blocking(loop, function)

    control_loop._ORDER.seed(seed)
    with (
        patch.multiple(
            time,
            time_ns=time_ns,
            time=lambda: time_ns() / 1e9,
            monotonic=loop.time,
            perf_counter=loop.time,
        ),
        patch.multiple(
            secrets,
            randbits=chance.getrandbits,
            token_bytes=lambda size=32: chance.randbytes(size),
            token_hex=lambda size=32: chance.randbytes(size).hex(),
        ),
        patch.multiple(
            FairThreads,
            __init__=lambda self, *args, **kwargs: None,
            submit=submit,
            shutdown=lambda self, **kwargs: None,
        ),
        patch.object(asyncio, "run_coroutine_threadsafe", Awaited),
        patch.object(mvprune, "__version__", VERSION),
        patch.object(layout, "ThreadPoolExecutor", _Here),
    ):
        yield
