"""Signs of life of an attempt's ranks: one that stands still is named in the log, and ends the attempt in the end.

A process that is stopped (SIGSTOP), or hangs in the kernel, neither ends nor computes, and the other ranks wait for it.
Every rank sends a sign from a thread of its own, which also runs while the rank computes, reads or writes for long.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mvprune.common.units import duration
from mvprune_workers.events import SignEvent, TrainerEvent

_SIGN_SECONDS = 2.0  # between the signs of a rank
_LOOK_SECONDS = 0.5  # between the looks of the watcher
_FROZEN_SECONDS = 5.0  # a look that comes so late: the watcher has stood still itself, and knows nothing of the others


@contextmanager
def signs(rank: int, emit: Callable[[TrainerEvent], None]) -> Iterator[None]:
    """A context in which this process sends signs of life; the last one says that it leaves."""
    end = threading.Event()

    def send() -> None:
        while not end.is_set():
            emit(SignEvent(rank))
            end.wait(_SIGN_SECONDS)

    threading.Thread(target=send, name="signs", daemon=True).start()
    try:
        yield
    finally:
        end.set()
        emit(SignEvent(rank, leaves=True))


class Watch:
    """Watches the ranks of one machine. A rank is watched from its first sign until it leaves.

    Args:
        say: writes a line into the log.
        on_lost: is called once, in a thread, when a rank is given up; its argument is a sentence that says so.
        silent: seconds without a sign until the log says so.
        lost: seconds without a sign until the rank is given up.
        clock: in seconds.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        on_lost: Callable[[str], None],
        silent: float,
        lost: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._on_lost, self._silent, self._lost, self._clock = say, on_lost, silent, lost, clock
        self._heard: dict[int, float] = {}  # when
        self._said: dict[int, float] = {}  # after how many seconds it is said next
        self._looked = clock()
        self._lock = threading.Lock()
        self._end = threading.Event()

    def start(self) -> None:
        """Starts watching."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def finish(self) -> None:
        """Ends watching."""
        self._end.set()

    def take(self, event: SignEvent) -> None:
        """Takes a sign."""
        with self._lock:
            now = self._clock()
            before = self._heard.pop(event.rank, now)
            if self._said.pop(event.rank, None):
                self._say(f"rank {event.rank} answers again, after {duration(now - before)}")
            if not event.leaves:
                self._heard[event.rank] = now

    def look(self) -> bool:
        """Looks once at all ranks. Returns whether one of them was given up."""
        with self._lock:
            now = self._clock()
            late, self._looked = now - self._looked, now
            if late > _FROZEN_SECONDS:
                self._heard = dict.fromkeys(self._heard, now)
                return False
            for rank, heard in self._heard.items():
                quiet = now - heard
                if quiet >= self._said.get(rank, self._silent):
                    self._said[rank] = 2 * quiet
                    self._say(
                        f"rank {rank} has not answered for {duration(quiet)}: it is stopped, or hangs; the attempt "
                        f"ends after {duration(self._lost)}"
                    )
            lost = [rank for rank, heard in self._heard.items() if now - heard >= self._lost]
        if lost:
            names = " and ".join(f"rank {rank}" for rank in lost)
            self._on_lost(f"The attempt has lost {names}: no answer for {duration(self._lost)}; stopped, or hanging.")
        return bool(lost)

    def _run(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            if self.look():
                return
