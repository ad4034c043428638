"""The world around the control planes, in memory and on their clock: a store, a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mvprune_service.clock import SECOND
from mvprune_service.executors.base import Capacity, ExecutorUnavailable, Launch, Node, Observation, Phase, Refs
from mvprune_service.stores.base import FRESH_US, Entry, ObjectNotFound, StoreUnavailable, check_key

from .conftest import TestClock

CPUS = 3.0
_GRACE = 30 * SECOND  # of a process, between SIGTERM and SIGKILL


class MemoryStore:
    """A BlobStore that can be away, and whose objects age on the clock of the test."""

    url = "memory://store"

    def __init__(self, clock: TestClock) -> None:
        self._clock = clock
        self._objects: dict[str, tuple[bytes, int]] = {}
        self.away = False

    @property
    def now(self) -> int:
        """Its clock."""
        return self._clock.now

    def holds(self, key: str, size: int | None = None) -> bool:
        """Whether it is there, even while nobody can reach it."""
        return key in self._objects and size in (None, len(self._objects[key][0]))

    def peek(self, key: str) -> bytes:
        """What is there, even while nobody can reach it. Raises KeyError."""
        return self._objects[key][0]

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        self._reach()
        if if_absent and key in self._objects:
            return False
        self._objects[check_key(key)] = data, self._clock.now
        return True

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        self._reach()
        data = path.read_bytes()
        there, modified = self._objects.get(key, (b"", 0))
        if there != data or modified < self._clock.now - FRESH_US:
            self._objects[check_key(key)] = data, self._clock.now

    def get(self, key: str) -> bytes:
        self._reach()
        if key not in self._objects:
            raise ObjectNotFound(key)
        return self._objects[key][0]

    def read(self, key: str, offset: int, limit: int) -> bytes:
        return self.get(key)[offset : offset + limit]

    def size(self, key: str) -> int | None:
        self._reach()
        return len(self._objects[key][0]) if key in self._objects else None

    def delete(self, key: str) -> None:
        self._reach()
        self._objects.pop(key, None)

    def list(self, prefix: str) -> Iterator[Entry]:
        self._reach()
        found = sorted(key for key in self._objects if key.startswith(prefix))
        return (Entry(key, len(self._objects[key][0]), self._objects[key][1]) for key in found if key in self._objects)

    def remove_torn(self, before_us: int) -> None:
        self._reach()

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        return None

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailable("away")


class Process:
    """What the cluster runs for a launch, as the cluster sees it."""

    def __init__(self, launch: Launch, clock: TestClock) -> None:
        self.launch = launch
        self.exit_code: int | None = None
        self._clock = clock
        self._kill_at: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it still runs. Once told to stop it may run for its grace."""
        if self.exit_code is None and self._kill_at is not None and self._clock.now >= self._kill_at:
            self.exit_code = 137
        return self.exit_code is None

    @property
    def told_to_stop(self) -> bool:
        """Whether it was sent SIGTERM."""
        return self._kill_at is not None

    def stop(self) -> None:
        """SIGTERM."""
        self._kill_at = self._kill_at or self._clock.now + _GRACE

    def exit(self, code: int) -> None:
        """Ends it."""
        if self.alive:
            self.exit_code = code


class Cluster:
    """An Executor that can be away, lose an answer, and forget its processes while they go on."""

    name = "cluster"

    def __init__(self, clock: TestClock) -> None:
        self._clock = clock
        self._known: dict[str, Process] = {}
        self.processes: list[Process] = []  # all that were ever started
        self.away = False
        self.loses_answers = False

    def restart_head(self) -> None:
        """Its head restarts with an empty table."""
        self._known.clear()

    def capacity(self) -> Capacity:
        self._reach()
        return Capacity((Node(CPUS, 0, 8 << 30),))

    def submit(self, launch: Launch) -> None:
        self._reach()
        if launch.ref not in self._known:
            self._known[launch.ref] = Process(launch, self._clock)
            self.processes.append(self._known[launch.ref])
        self._answer()

    def observe(self, ref: str) -> Observation:
        if self.away:
            return Observation(Phase.UNKNOWN)
        process = self._known.get(ref)
        if process is None:
            return Observation(Phase.GONE)
        return Observation(Phase.RUNNING) if process.alive else Observation(Phase.EXITED, process.exit_code)

    def stop(self, ref: str) -> None:
        self._reach()
        if ref in self._known:
            self._known[ref].stop()
        self._answer()

    def list(self, prefix: str) -> Refs:
        self._reach()
        known = {ref: process for ref, process in self._known.items() if ref.startswith(prefix)}
        return Refs(
            tuple(ref for ref, process in known.items() if process.alive),
            {ref: self._clock.now for ref, process in known.items() if not process.alive},
        )

    def output(self, ref: str) -> bytes:
        self._reach()
        return b""

    def forget(self, ref: str) -> None:
        self._reach()
        process = self._known.get(ref)
        if process is not None and not process.alive:
            del self._known[ref]

    def close(self) -> None:
        pass

    def _reach(self) -> None:
        if self.away:
            raise ExecutorUnavailable("away")

    def _answer(self) -> None:
        if self.loses_answers:
            raise ExecutorUnavailable("timed out")
