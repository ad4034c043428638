"""What servers and workers share: a store of objects, and a cluster that runs processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

from mvprune_service.clock import system_clock
from mvprune_service.executors.base import Capacity, ExecutorUnavailable, Launch, Node, Observation, Phase, Refs
from mvprune_service.stores.base import FRESH_US, Entry, ObjectNotFound, SignedPut, StoreUnavailable, check_key

from .wire import Wire

T = TypeVar("T")
CPUS = 3.0
_MEMORY = 8 << 30


class Objects:
    """The objects of the store, and when each was written."""

    def __init__(self) -> None:
        self.by_key: dict[str, tuple[bytes, int]] = {}
        self.away = False

    def holds(self, key: str, size: int | None = None) -> bool:
        """Whether an object is there, with this size."""
        return key in self.by_key and size in (None, len(self.by_key[key][0]))

    def peek(self, key: str) -> bytes:
        """Its content. Raises KeyError."""
        return self.by_key[key][0]


class SimulatedStore:
    """A BlobStore: one process's access to the objects. Each method is one operation."""

    url = "memory://store"

    def __init__(self, objects: Objects, wire: Wire) -> None:
        self._objects = objects
        self._wire = wire

    def put(self, key: str, data: bytes, *, if_absent: bool = False) -> bool:
        def effect() -> bool:
            if if_absent and key in self._objects.by_key:
                return False
            self._objects.by_key[check_key(key)] = data, system_clock()
            return True

        return self._do(f"put {key}", effect)

    def put_file(self, key: str, path: Path, sha256: str) -> None:
        data = path.read_bytes()
        assert hashlib.sha256(data).hexdigest() == sha256

        def effect() -> None:
            there, modified = self._objects.by_key.get(key, (b"", 0))
            if there != data or modified < system_clock() - FRESH_US:
                self._objects.by_key[check_key(key)] = data, system_clock()

        self._do(f"put {key}", effect)

    def get(self, key: str) -> bytes:
        return self._do(f"get {key}", partial(self._get, key))

    def read(self, key: str, offset: int, limit: int) -> bytes:
        return self._do(f"read {key}", lambda: self._get(key)[offset : offset + limit])

    def size(self, key: str) -> int | None:
        found = self._objects.by_key
        return self._do(f"size of {key}", lambda: len(found[key][0]) if key in found else None)

    def delete(self, key: str) -> None:
        def effect() -> None:
            self._objects.by_key.pop(key, None)

        self._do(f"delete {key}", effect)

    def list(self, prefix: str) -> Iterator[Entry]:
        def effect() -> list[Entry]:
            found = self._objects.by_key.items()
            return [Entry(key, len(data), when) for key, (data, when) in sorted(found) if key.startswith(prefix)]

        return iter(self._do(f"list {prefix}", effect))

    def remove_torn(self, before_us: int) -> None:
        """Writes are whole or not at all."""

    def presign(self, key: str, ttl_seconds: int) -> str | None:
        return None

    def presign_put(self, key: str, size: int, sha256: str, ttl_seconds: int) -> SignedPut | None:
        return None

    def _get(self, key: str) -> bytes:
        if key not in self._objects.by_key:
            raise ObjectNotFound(key)
        return self._objects.by_key[key][0]

    def _do(self, name: str, effect: Callable[[], T]) -> T:
        def reach() -> T:
            if self._objects.away:
                raise StoreUnavailable("away")
            return effect()

        return self._wire.block("store", name, reach, StoreUnavailable)


class Running:
    """What the cluster runs for a launch. `kill` and `terminate` are what it does to the process."""

    def __init__(self, launch: Launch, terminate: Callable[[], None], kill: Callable[[], None]) -> None:
        self.launch = launch
        self.exit_code: int | None = None
        self.end_us = 0
        self.terminate = terminate
        self.kill = kill

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.exit_code is None

    def exit(self, code: int) -> None:
        """It has ended."""
        if self.alive:
            self.exit_code, self.end_us = code, system_clock()


class Cluster:
    """The processes. It can be away, and forget them while they go on.

    Args:
        start: makes a process.
    """

    def __init__(self, start: Callable[[Launch], Running]) -> None:
        self.known: dict[str, Running] = {}
        self.away = False
        self.start = start

    def forget_all(self) -> None:
        """Its head restarts with an empty table."""
        self.known.clear()


class SimulatedExecutor:
    """An Executor: one server's access to the cluster."""

    name = "cluster"
    description = "a simulated cluster"
    private_folders: tuple[Path, ...] = ()

    def __init__(self, cluster: Cluster, wire: Wire) -> None:
        self._cluster = cluster
        self._wire = wire

    def capacity(self) -> Capacity:
        return self._do("capacity", lambda: Capacity((Node(CPUS, 0, _MEMORY),)))

    def submit(self, launch: Launch) -> None:
        def effect() -> None:
            if launch.ref not in self._cluster.known:
                self._cluster.known[launch.ref] = self._cluster.start(launch)

        self._do(f"submit {launch.env['MVPRUNE_ATTEMPT']}", effect)

    def observe(self, ref: str) -> Observation:
        def effect() -> Observation:
            found = self._cluster.known.get(ref)
            if found is None:
                return Observation(Phase.GONE)
            return Observation(Phase.RUNNING) if found.alive else Observation(Phase.EXITED, found.exit_code)

        try:
            return self._do(f"observe {ref}", effect)
        except ExecutorUnavailable:
            return Observation(Phase.UNKNOWN)

    def stop(self, ref: str) -> None:
        def effect() -> None:
            found = self._cluster.known.get(ref)
            if found is not None and found.alive:
                found.terminate()

        self._do(f"stop {ref}", effect)

    def list(self, prefix: str) -> Refs:
        def effect() -> Refs:
            known = {ref: found for ref, found in self._cluster.known.items() if ref.startswith(prefix)}
            live = tuple(ref for ref, found in known.items() if found.alive)
            return Refs(live, {ref: found.end_us for ref, found in known.items() if not found.alive})

        return self._do("list processes", effect)

    def output(self, ref: str) -> bytes:
        return self._do(f"output of {ref}", lambda: b"")

    def forget(self, ref: str) -> None:
        def effect() -> None:
            found = self._cluster.known.get(ref)
            if found is not None and not found.alive:
                del self._cluster.known[ref]

        self._do(f"forget {ref}", effect)

    def close(self) -> None:
        pass

    def _do(self, name: str, effect: Callable[[], T]) -> T:
        def reach() -> T:
            if self._cluster.away:
                raise ExecutorUnavailable("away")
            return effect()

        return self._wire.block("executor", name, reach, ExecutorUnavailable)


GRACE_SECONDS = 30.0
"""Of a process, between SIGTERM and SIGKILL."""
