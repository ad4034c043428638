"""A time limit of a block: it ends the block, and no other cancellation is taken for it."""

from __future__ import annotations

import asyncio

import pytest

from mvprune_service.api.access.deadline import Deadline

LONG = 60.0


async def test_a_block_that_takes_too_long_ends() -> None:
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.sleep(LONG)
    assert task.cancelling() == 0
    await asyncio.sleep(0.02)  # the task goes on


async def test_a_block_in_time_gives_what_it_gives() -> None:
    with Deadline(0.01):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)
    with pytest.raises(ZeroDivisionError), Deadline(LONG):
        raise ZeroDivisionError


async def test_what_a_block_raises_after_its_time_is_kept() -> None:
    async def fail() -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), Deadline(0.01):
        await fail()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_task_that_is_cancelled_stays_cancelled() -> None:
    async def work() -> None:
        with Deadline(LONG):
            await asyncio.sleep(LONG)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelled_and_late_at_once_is_cancelled() -> None:
    async def work() -> None:
        with Deadline(0.01):
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                other.set()
                await asyncio.sleep(LONG)

    other = asyncio.Event()
    task = asyncio.create_task(work())
    await other.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_deadlines_are_nested() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01), Deadline(LONG):
        await asyncio.sleep(LONG)
    with Deadline(LONG), pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.sleep(LONG)
