"""A store that breaks off."""

from __future__ import annotations

import threading
from typing import Any

from mvprune_service.stores.base import BlobStore, StoreUnavailable


class Cut:
    """A store whose connection breaks before the call with this number of those with these names."""

    def __init__(self, store: BlobStore, calls: int, *names: str) -> None:
        self._store = store
        self._left = calls
        self._names = names
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in self._names:
            return found

        def call(*args: object, **kwargs: object) -> object:
            with self._lock:  # files are sent side by side
                if self._left == 0:
                    raise StoreUnavailable("cut")
                self._left -= 1
            return found(*args, **kwargs)

        return call
