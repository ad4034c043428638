"""Probes of the parts that this server needs, and the problems that they find."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Generic, TypeVar

from sqlalchemy.exc import DBAPIError

from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.observability.logs import redact

_T = TypeVar("_T")
_TEXT = 700


class Problems:
    """Present problems, and since when."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, str]] = {}

    def report(self, part: str, error: BaseException) -> None:
        """Something is wrong with a part. `since` stays what it was if it was wrong before."""
        now = self._clock()
        since = min(self._known[part][0], now) if part in self._known else now  # a clock may have been set back
        self._known[part] = since, words(error)

    def clear(self, part: str) -> None:
        """All is well with a part."""
        self._known.pop(part, None)

    def seconds(self, part: str) -> float:
        """For how long something has been wrong with a part; 0 if nothing is."""
        return (self._clock() - self._known[part][0]) / SECOND if part in self._known else 0.0

    def texts(self) -> dict[str, str]:
        """A sentence for each part that has a problem."""
        return {
            part: f"{what} (since {datetime.fromtimestamp(since / SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC)"
            for part, (since, what) in self._known.items()
        }


class Probe(Generic[_T]):
    """Asks a part a question, one at a time however slow it is. An answer that came after its caller had given up is
    outdated: the next caller does not get it.

    Args:
        part: its name among the problems.
        ask: the question.
        timeout: seconds after which a missing answer is a problem.
        fresh: seconds that an answer is good for.
    """

    def __init__(
        self, part: str, ask: Callable[[], Awaitable[_T]], problems: Problems, timeout: float = 2.0, fresh: float = 1.0
    ) -> None:
        self.part = part
        self._ask = ask
        self._problems = problems
        self._timeout = timeout
        self._fresh = fresh
        self._asking: asyncio.Future[_T] | None = None
        self._given_up = False  # the caller did
        self._answer: tuple[float, _T] | None = None

    async def get(self) -> _T | None:
        """The answer. None where there is none: then the part is among the problems."""
        started = time.monotonic()
        if self._answer is not None and started - self._answer[0] < self._fresh:
            return self._answer[1]
        if self._asking is not None and self._given_up:
            await asyncio.wait({self._asking}, timeout=self._timeout)
        if self._asking is None or (self._given_up and self._asking.done()):
            if self._asking is not None:
                self._asking.exception()  # it is not used, and not logged as never retrieved
            self._asking, self._given_up = asyncio.ensure_future(self._ask()), False
        asking = self._asking
        done, _ = await asyncio.wait({asking}, timeout=max(0.0, started + self._timeout - time.monotonic()))
        if not done:
            self._given_up = True
            self._problems.report(self.part, TimeoutError(f"no answer within {self._timeout:g} s"))
            return None
        if self._asking is asking:
            self._asking = None
        error = asking.exception()
        if error is not None:
            self._problems.report(self.part, error)
            return None
        self._problems.clear(self.part)
        self._answer = time.monotonic(), asking.result()
        return asking.result()


def words(error: BaseException) -> str:
    """The error in one line, without secrets."""
    if isinstance(error, DatabaseUnavailable) and error.__cause__ is not None:
        error = error.__cause__
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    first = next(iter(str(cause).splitlines()), "")
    return redact(f"{type(cause).__name__}: {first}" if first else type(cause).__name__)[:_TEXT]
