"""Requests that come while the model is busy are computed together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from mvprune.data.textfiles import DataError
from mvprune.serving.batching import Batcher, ModelFailed, Overloaded
from mvprune.serving.metrics import Metrics


class Model:
    """Answers a number with its square once it may; 13 it cannot."""

    fields = ()

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.may, self.began = threading.Semaphore(0), threading.Semaphore(0)

    def predict(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
        self.began.release()
        assert self.may.acquire(timeout=30)
        numbers = [int(given["text"]) for given in inputs]
        self.calls.append(numbers)
        if 13 in numbers:
            raise DataError("text", "13")
        return [{"square": number * number} for number in numbers]


@contextlib.asynccontextmanager
async def running(model: Model, max_batch: int = 3, max_waiting: int = 100) -> AsyncIterator[Batcher]:
    batcher = Batcher(model, max_batch, max_waiting, Metrics())
    task = asyncio.create_task(batcher.run())
    try:
        yield batcher
    finally:
        task.cancel()


def texts(*numbers: int, length: int = 1) -> list[dict[str, str]]:
    """Inputs of at least that many characters."""
    return [{"text": f"{number:0{length}}"} for number in numbers]


def ask(batcher: Batcher, *numbers: int) -> asyncio.Task[list[dict[str, Any]]]:
    return asyncio.create_task(batcher.answer(texts(*numbers)))


async def busy(model: Model, batcher: Batcher, number: int) -> asyncio.Task[list[dict[str, Any]]]:
    """The model has taken a request and waits to be let go."""
    asked = ask(batcher, number)
    assert await asyncio.to_thread(model.began.acquire, timeout=30)
    return asked


async def test_what_waits_is_computed_together_in_order_up_to_the_limit() -> None:
    model = Model()
    async with running(model) as batcher:
        asked = [await busy(model, batcher, 1), ask(batcher, 2), ask(batcher, 3, 4), ask(batcher, 5)]
        await asyncio.sleep(0)
        model.may.release(3)
        answers = [[answer["square"] for answer in await one] for one in asked]
    assert model.calls == [[1], [2, 3, 4], [5]]
    assert answers == [[1], [4], [9, 16], [25]]


async def test_inputs_of_similar_length_are_computed_together() -> None:
    """The oldest comes next, whatever its length; shorter and longer ones wait for it, and keep their order."""
    model = Model()
    async with running(model) as batcher:
        asked = [await busy(model, batcher, 1)]
        for number, length in ((2, 400), (3, 100), (4, 301), (5, 10), (6, 500), (7, 132), (8, 501), (9, 299), (10, 68)):
            asked.append(asyncio.create_task(batcher.answer(texts(number, length=length))))
        await asyncio.sleep(0)
        model.may.release(8)
        answers = [answer["square"] for one in asked for answer in await one]
    assert model.calls == [[1], [2, 4, 6], [3, 7, 10], [5], [8], [9]]
    assert answers == [number**2 for number in range(1, 11)]


async def test_a_request_larger_than_a_batch_is_computed_by_itself() -> None:
    model = Model()
    model.may.release(2)
    async with running(model, max_batch=2) as batcher:
        assert len(await ask(batcher, 1, 2, 3)) == 3


async def test_one_bad_request_does_not_fail_its_neighbours() -> None:
    model = Model()
    async with running(model) as batcher:
        first = await busy(model, batcher, 1)
        good, bad = ask(batcher, 2), ask(batcher, 13)
        await asyncio.sleep(0)
        model.may.release(4)
        assert await good == [{"square": 4}]
        with pytest.raises(DataError, match="13"):
            await bad
        await first
    assert model.calls == [[1], [2, 13], [2], [13]]


async def test_nobody_waits_for_a_cancelled_request() -> None:
    model = Model()
    async with running(model) as batcher:
        first = await busy(model, batcher, 1)
        gone, other = ask(batcher, 2), ask(batcher, 3)
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        model.may.release(2)
        await asyncio.gather(first, other)
    assert model.calls == [[1], [3]]


async def test_overload() -> None:
    model = Model()
    async with running(model, max_waiting=2) as batcher:
        first = await busy(model, batcher, 1)
        waiting = ask(batcher, 2)
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await batcher.answer(texts(3, 4))
        last = ask(batcher, 5)
        model.may.release(2)
        await asyncio.gather(first, waiting, last)
    assert model.calls == [[1], [2, 5]]


class Panic(BaseException):
    """What a Rust library raises is no Exception."""


@pytest.mark.parametrize("raised", [Panic, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, MemoryError])
async def test_whatever_is_raised_fails_only_its_request(raised: type[BaseException]) -> None:
    class Fragile(Model):
        def predict(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
            answers = super().predict(inputs)
            if {"text": "7"} in inputs:
                raise raised("7")
            return answers

    model = Fragile()
    async with running(model) as batcher:
        first = await busy(model, batcher, 1)
        good, bad, other = ask(batcher, 2), ask(batcher, 7), ask(batcher, 3)
        await asyncio.sleep(0)
        model.may.release(5)
        assert await good == [{"square": 4}]
        with pytest.raises(ModelFailed):
            await bad
        assert await other == [{"square": 9}]
        await first
    assert model.calls == [[1], [2, 7, 3], [2], [7], [3]]


async def test_too_few_answers_are_a_failure() -> None:
    class Forgetful(Model):
        def predict(self, inputs: Sequence[Any]) -> list[dict[str, Any]]:
            return super().predict(inputs)[1:]

    model = Forgetful()
    model.may.release(1)
    async with running(model) as batcher:
        with pytest.raises(ModelFailed):
            await ask(batcher, 2)


async def test_where_the_task_dies_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(batcher: Batcher) -> list[Any]:
        raise RuntimeError("a mistake in the batching")

    model = Model()
    monkeypatch.setattr(Batcher, "_take", broken)
    batcher = Batcher(model, 3, 100, Metrics())
    task = asyncio.create_task(batcher.run())
    asked = ask(batcher, 1)
    with pytest.raises(ModelFailed):
        await asyncio.wait_for(asked, 10)
    with pytest.raises(RuntimeError, match="a mistake"):
        await task
    with pytest.raises(ModelFailed):
        await batcher.answer([2])  # type: ignore[list-item]
