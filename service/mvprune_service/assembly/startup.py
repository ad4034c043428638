"""A start as a list of named steps, each with its stop."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import NamedTuple, Self

log = logging.getLogger(__name__)


class StartError(Exception):
    """The server cannot start; the text says why and what to do."""


class Step(NamedTuple):
    """One step of a start. `run` makes a context manager: entering it starts something, leaving it stops that again."""

    name: str
    run: Callable[[], AbstractAsyncContextManager[None]]


class Sequence:
    """Starts steps in the order given and stops them in reverse order. If a step fails, those before it are stopped."""

    def __init__(self, *steps: Step) -> None:
        self._steps = steps
        self._started = AsyncExitStack()

    async def __aenter__(self) -> Self:
        try:
            for step in self._steps:
                await self._started.enter_async_context(step.run())
                log.debug("started: %s", step.name)
        except BaseException:
            await self._started.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._started.aclose()
