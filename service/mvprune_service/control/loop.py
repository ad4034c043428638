"""Runs a step repeatedly: at once after a change, else after an interval."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from mvprune_service.changes import Changes, wait_for_change
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.tables.attempts import Live
from mvprune_service.observability import metrics
from mvprune_service.observability.logs import SUBJECT
from mvprune_service.observability.probes import Problems, words

log = logging.getLogger(__name__)

# A loop pauses ten times as long as its step took, within these bounds. So changes in a burst share one step, and on a
# busy server clients come first.
_RESTS, _SHORTEST_SECONDS, _LONGEST_SECONDS = 10, 0.1, 0.5
_RETRY_SECONDS = 5.0
_ORDER = random.Random()  # noqa: S311 (it hides nothing)


async def run_loop(
    name: str,
    step: Callable[[], Awaitable[None]],
    changes: Changes,
    interval: float,
    starts_jobs: bool,
    problems: Problems,
) -> None:
    """Runs `step` until cancelled. An error is logged, and is among the problems until a step succeeds. The step is
    tried again after the interval, or sooner."""
    again = min(interval, _RETRY_SECONDS)
    with changes.of_all() if starts_jobs else changes.of_moves() as changed:
        while True:
            started = time.perf_counter()
            error = await _try(name, step, again)
            seconds = time.perf_counter() - started
            metrics.step_ended(name, seconds, failed=error is not None)
            if error is None:
                problems.clear(name)
            else:
                problems.report(name, error)
                changed.clear()
            await asyncio.sleep(min(max(_SHORTEST_SECONDS, _RESTS * seconds), _LONGEST_SECONDS))
            await wait_for_change(changed, interval if error is None else again)


async def _try(name: str, step: Callable[[], Awaitable[None]], again: float) -> Exception | None:
    SUBJECT.set(None)
    try:
        await step()
    except DatabaseUnavailable as error:
        log.warning("%s: the database is away (%s); trying again in %g s", name, words(error), again)
        return error
    except Exception as error:
        log.exception("%s failed; trying again in %g s", name, again)
        return error
    return None


async def for_each(
    attempts: Iterable[Live], work: Callable[[Live], Awaitable[None]], away: tuple[type[Exception], ...] = ()
) -> None:
    """Does `work` for all attempts. Errors are raised in the end, so an attempt that fails holds up no other.

    Args:
        away: errors about a part that all attempts need. They may have taken as long as a timeout, so they end the
            round, without being raised.

    Raises:
        DatabaseUnavailable: at once.
    """
    errors: list[Exception] = []
    shuffled = list(attempts)
    _ORDER.shuffle(shuffled)  # so that an attempt that ends each round does not always keep out the same others
    for live in shuffled:
        SUBJECT.set(live)
        try:
            await work(live)
        except DatabaseUnavailable:
            raise
        except away as error:
            log.warning("%s waits, and others with it: %s", live.name, error)
            break
        except Exception as error:
            error.add_note(f"This was about {live.name}.")
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else ExceptionGroup("several attempts", errors)


class Loop(NamedTuple):
    """A step that is repeated.

    Attributes:
        changes: each starts it early.
        interval: seconds.
        starts_jobs: whether a new job starts it early too. While many are submitted, others have nothing to do.
    """

    name: str
    step: Callable[[], Awaitable[None]]
    changes: Changes
    interval: float
    starts_jobs: bool = False


class Loops:
    """The running loops, by name. A loop that fails is among `problems`."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, loop: Loop) -> None:
        """Starts a loop: see `run_loop`."""
        self._tasks[loop.name] = asyncio.create_task(run_loop(*loop, self._problems), name=loop.name)

    async def stop(self, *names: str) -> None:
        """Stops these loops; without names, all. Calls that a step has begun are finished."""
        tasks = [self._tasks.pop(name) for name in names or tuple(self._tasks) if name in self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
