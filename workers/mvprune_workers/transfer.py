"""Transfers from and to a store that may be unavailable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreDamaged, StoreUnavailable
from mvprune_workers import backoff
from mvprune_workers.event_queue import Event, EventQueue

_T = TypeVar("_T")


def transfer(
    store_url: str, work: Callable[[BlobStore], _T], say: Callable[[str], None], limit: float, stopped: threading.Event
) -> _T:
    """The result of `work` on the store.

    If the store is unavailable, `work` is repeated for up to `limit` seconds, unless `stopped` is set, or waiting does
    not help. Raises StoreUnavailable, and the errors of `work`.
    """
    deadline = time.monotonic() + limit
    for delay in backoff.delays(first=1.0, cap=30.0):
        try:
            return work(open_store(store_url, create=False))
        except StoreDamaged:
            raise
        except StoreUnavailable as error:
            if time.monotonic() + delay > deadline or stopped.is_set():
                raise
            say(f"the artifact store cannot be used, trying again: {error}")
            stopped.wait(delay)
    raise AssertionError("delays are endless")


@dataclass
class Transfer(Generic[_T]):
    """A `transfer` in a thread of its own; posts `ended`."""

    store_url: str
    work: Callable[[BlobStore], _T]
    ended: Event
    events: EventQueue
    say: Callable[[str], None]
    limit: float
    result: _T | None = None  # set once the work is done
    error: Exception | None = None

    def __post_init__(self) -> None:
        self._stopped = threading.Event()

    def start(self) -> None:
        """Starts working."""
        threading.Thread(target=self._run, name="transfer", daemon=True).start()

    def stop(self) -> None:
        """Prevents further tries. The current one continues."""
        self._stopped.set()

    def _run(self) -> None:
        try:
            self.result = transfer(self.store_url, self.work, self.say, self.limit, self._stopped)
        except Exception as error:
            self.error = error
        self.events.post(self.ended)
