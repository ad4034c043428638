"""Waiting for what other processes, threads and tasks do: they send no signal to a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

T = TypeVar("T")

# Seconds. A test that passes never waits as long, however busy the machine is; one that fails ends before pytest's
# own limit, and says what it waited for.
PATIENCE = 240.0
_POLL_SECONDS = 0.02


def until(condition: Callable[[], T], told: str | Callable[[], object] = "it became true") -> T:
    """Returns what `condition` gives as soon as that is true. `told` is what was waited for, or tells how it is."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, _failure(told)
        time.sleep(_POLL_SECONDS)
    return found


async def until_seen(
    look: Callable[[], Awaitable[T]], is_right: Callable[[T], Any], told: str | Callable[[], object] = ""
) -> T:
    """The first sight that is right, while the event loop goes on."""
    deadline = time.monotonic() + PATIENCE
    while not is_right(seen := await look()):
        assert time.monotonic() < deadline, _failure(told or str(seen))
        await asyncio.sleep(_POLL_SECONDS)
    return seen


async def until_true(condition: Callable[[], object], told: str | Callable[[], object] = "it became true") -> None:
    """As `until`, while the event loop goes on."""

    async def look() -> object:
        return condition()

    await until_seen(look, bool, told)


def _failure(told: str | Callable[[], object]) -> str:
    return f"waited for {PATIENCE:g} s: {told if isinstance(told, str) else told()}"
