"""Passes results of other threads to the event loop: one wake-up for all that are ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

Listener = Callable[[set[str], bool], None]


class Mailbox:
    """The mailbox of one event loop. `put` and `announce` may be called on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._answers: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._changed: dict[Listener, set[str]] = {}
        self._are_new: dict[Listener, bool] = {}
        self._woken = False

    def put(self, answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        """Completes `answer`, unless it was cancelled."""
        with self._lock:
            self._answers.append((answer, result, error))
            self._wake()

    def announce(self, listener: Listener, uids: set[str], *, are_new: bool) -> None:
        """Calls the listener with these uids and all others announced until then, before answers that are put later;
        and with whether all of them are new."""
        with self._lock:
            self._changed.setdefault(listener, set()).update(uids)
            self._are_new[listener] = self._are_new.get(listener, True) and are_new
            self._wake()

    def _wake(self) -> None:
        if not self._woken:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._deliver)
            self._woken = True

    def _deliver(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
            changed, self._changed = self._changed, {}
            are_new, self._are_new = self._are_new, {}
            self._woken = False
        for listener, uids in changed.items():
            listener(uids, are_new[listener])
        for answer, result, error in answers:
            if answer.cancelled():
                continue
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)
