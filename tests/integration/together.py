"""A store whose calls wait for each other."""

from __future__ import annotations

import threading
from typing import Any

from mvprune_service.stores.base import BlobStore

from ..waiting import PATIENCE


class Together:
    """A store. The first call with each of these names on the same object begins when `count` of them have come."""

    def __init__(self, store: BlobStore, count: int, *names: str) -> None:
        self._store = store
        self._barriers = {name: threading.Barrier(count) for name in names}
        self._seen: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in self._barriers:
            return found

        def call(key: str, *args: object, **kwargs: object) -> object:
            if (name, key) not in self._seen:
                self._seen.add((name, key))
                self._barriers[name].wait(PATIENCE)
            return found(key, *args, **kwargs)

        return call
