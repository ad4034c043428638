"""Wakes those in this process who wait for changes of jobs. It is only a hint: the database decides."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

_MOST = 1_000  # jobs that are gathered


class Gathered:
    """The jobs that have changed since they were taken the last time.

    Attributes:
        changed: is set when there are some.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._uids: set[str] | None = set()

    def add(self, uids: set[str] | None) -> None:
        """These have changed; None: any may have."""
        if self._uids is not None:
            self._uids = None if uids is None or len(self._uids) + len(uids) > _MOST else self._uids | uids
        self.changed.set()

    def take(self) -> set[str] | None:
        """The uids of those that have changed; None: any may have."""
        taken, self._uids = self._uids, set()
        self.changed.clear()
        return taken


class Changes:
    """Wakes subscribers after a commit. Call everything on the event loop."""

    def __init__(self) -> None:
        self._by_job: dict[str, set[asyncio.Event]] = {}
        self._all: set[asyncio.Event] = set()
        self._moves: set[asyncio.Event] = set()
        self._gathering: set[Gathered] = set()

    def announce(self, uids: set[str] | None, are_new: bool = False) -> None:
        """Wakes everyone who waits for any of these jobs; None: for any job. `are_new`: all of them were created, and
        nothing else changed."""
        for uid in self._by_job if uids is None else uids:
            for event in self._by_job.get(uid, ()):
                event.set()
        for gathered in self._gathering:
            gathered.add(uids)
        for event in chain(self._all, () if are_new else self._moves):
            event.set()

    @contextmanager
    def of_job(self, uid: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job changes."""
        event = asyncio.Event()
        self._by_job.setdefault(uid, set()).add(event)
        try:
            yield event
        finally:
            self._by_job[uid].discard(event)
            if not self._by_job[uid]:
                del self._by_job[uid]

    @contextmanager
    def gathered(self) -> Iterator[Gathered]:
        """Gathers which jobs change."""
        found = Gathered()
        self._gathering.add(found)
        try:
            yield found
        finally:
            self._gathering.discard(found)

    @contextmanager
    def of_all(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever any job is created or changes."""
        with _event_in(self._all) as event:
            yield event

    @contextmanager
    def of_moves(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever any job changes, and not when jobs are only created."""
        with _event_in(self._moves) as event:
            yield event


@contextmanager
def _event_in(events: set[asyncio.Event]) -> Iterator[asyncio.Event]:
    event = asyncio.Event()
    events.add(event)
    try:
        yield event
    finally:
        events.discard(event)


async def wait_for_change(event: asyncio.Event, timeout: float) -> None:  # noqa: ASYNC109
    """Waits until the event is set or `timeout` seconds passed, and clears it."""
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        pass
    event.clear()
