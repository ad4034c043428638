"""Fair shares: whose work is next, where the work of several projects waits for the same threads or transactions."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SERVER = ""
"""The owner of the server's own work."""

OWNER: ContextVar[str] = ContextVar("owner", default=SERVER)
"""Whose work a task does: the project that a call is about, or the caller where it is about none."""

_NOMINAL = 0.001  # seconds that an item counts until it is known how long it took
_REMEMBERED = 10_000  # owners


class FairQueue(Generic[T]):
    """Items that wait. The next one is the oldest item of the owner that has used the least time.

    An owner that did not wait for a while has no credit: it begins level with those that are being served.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._used: dict[str, float] = {}  # seconds
        self._level = 0.0  # what the owner had used that was served last

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def put(self, owner: str, item: T) -> None:
        """Adds an item behind its owner's others."""
        self._items(owner).append(item)

    def put_back(self, owner: str, item: T) -> None:
        """Returns the item that was taken last of an owner: it is its next one again, and took no time."""
        self._items(owner).appendleft(item)
        self._used[owner] -= _NOMINAL

    def take(self, may: Callable[[str], bool] = lambda owner: True) -> tuple[str, T] | None:
        """The next item and its owner, of the owners that `may` have one; None if there is none."""
        owner = min(filter(may, self._waiting), key=self._used.__getitem__, default=None)
        if owner is None:
            return None
        items = self._waiting[owner]
        item = items.popleft()
        if not items:
            del self._waiting[owner]
        self._level = max(self._level, self._used[owner])
        self._used[owner] += _NOMINAL
        return owner, item

    def charge(self, owner: str, seconds: float) -> None:
        """Notes how long an item of an owner took."""
        self._used[owner] = self._used.get(owner, self._level) + max(0.0, seconds - _NOMINAL)
        if len(self._used) > _REMEMBERED:
            owing = self._level + _NOMINAL
            self._used = {one: used for one, used in self._used.items() if used > owing or one in self._waiting}

    def clear(self) -> list[T]:
        """Removes all items, and returns them."""
        items = [item for waiting in self._waiting.values() for item in waiting]
        self._waiting.clear()
        return items

    def _items(self, owner: str) -> deque[T]:
        if owner not in self._waiting:
            self._waiting[owner] = deque()
            self._used[owner] = max(self._used.get(owner, 0.0), self._level)
        return self._waiting[owner]


class FairThreads:
    """Threads for functions that block. Each owner has some of them at most, and waits for its turn.

    Args:
        name: of the threads.
        count: the largest number of them.
        of_each: the largest number for one owner; the server itself may have all.
    """

    def __init__(self, name: str, count: int, of_each: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._of_each = of_each
        self._lock = threading.Lock()
        self._queue: FairQueue[tuple[Future[Any], Callable[[], Any]]] = FairQueue()
        self._running: Counter[str] = Counter()

    def submit(self, owner: str, function: Callable[[], T]) -> Future[T]:
        """Runs a function when it is its owner's turn."""
        future: Future[T] = Future()
        with self._lock:
            self._queue.put(owner, (future, function))
        self._pool.submit(self._work)
        return future

    def shutdown(self, *, cancel_waiting: bool = False) -> None:
        """Waits for the functions that run, and for those that wait unless they are to be cancelled."""
        if cancel_waiting:
            with self._lock:
                waiting = self._queue.clear()
            for future, _ in waiting:
                future.cancel()
        self._pool.shutdown()

    def _work(self) -> None:
        """Runs functions until none may run. Each `submit` starts this once, so that a function waits only while all
        threads work, or while its owner has as many as it may have: these look for it when they have finished."""
        while taken := self._take():
            owner, (future, function) = taken
            started = time.perf_counter()
            try:
                if future.set_running_or_notify_cancel():
                    _run(future, function)
            finally:
                with self._lock:
                    self._running[owner] -= 1
                    if not self._running[owner]:
                        del self._running[owner]
                    self._queue.charge(owner, time.perf_counter() - started)

    def _take(self) -> tuple[str, tuple[Future[Any], Callable[[], Any]]] | None:
        with self._lock:
            taken = self._queue.take(lambda owner: owner == SERVER or self._running[owner] < self._of_each)
            if taken is not None:
                self._running[taken[0]] += 1
            return taken


def _run(future: Future[T], function: Callable[[], T]) -> None:
    try:
        result = function()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
