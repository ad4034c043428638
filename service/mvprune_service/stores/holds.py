"""Holds: while a store has one, no server deletes objects from it. A backup places one. See control/collector.py."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from mvprune_service.stores.base import BlobStore, StoreUnavailable

log = logging.getLogger(__name__)

HOLDS = "collection/backups/"
_RENEW_SECONDS = 20.0
_ABANDONED_SECONDS = 900.0  # without a renewal: its process was killed


@contextlib.contextmanager
def hold(store: BlobStore, renew_seconds: float = _RENEW_SECONDS) -> Iterator[str]:
    """Places a hold, renews it, and removes it at the end. The value is its key. Raises StoreUnavailable."""
    key, ended = f"{HOLDS}{uuid.uuid4().hex}", threading.Event()
    store.put(key, b"")

    def renew() -> None:
        while not ended.wait(renew_seconds):
            with contextlib.suppress(StoreUnavailable):  # the copying fails too, or the next renewal is in time
                store.put(key, b"")

    thread = threading.Thread(target=renew, name="hold", daemon=True)
    thread.start()
    try:
        yield key
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(StoreUnavailable):  # then it is abandoned
            store.delete(key)


class Holds:
    """The holds of a store, as one server sees them. No clock of another machine counts: a hold is abandoned if its
    modification time, by the store's clock, has not changed for a while, by this process's clock."""

    def __init__(self, store: BlobStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] = {}  # key → when it was modified, when that was first seen

    def any(self) -> bool:
        """Whether there is a hold. Removes abandoned ones. Blocks. Raises StoreUnavailable."""
        now, seen = self._clock(), self._seen
        found = {entry.key: entry.modified_us for entry in self._store.list(HOLDS)}
        self._seen = {
            key: seen[key] if key in seen and seen[key][0] == modified else (modified, now)
            for key, modified in found.items()
        }
        abandoned = [key for key, (_, since) in self._seen.items() if now - since > _ABANDONED_SECONDS]
        for key in abandoned:
            log.warning("removed the hold of a backup that did not end: %s", key)
            self._store.delete(key)
            del self._seen[key]
        return bool(self._seen)
