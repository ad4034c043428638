"""Servers as `Components` puts them together, and the calls that reach them."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import Message

from mvprune.sources.references import Roots
from mvprune_service.api.access.calls import END
from mvprune_service.api.access.errors import ApiError
from mvprune_service.assembly.components import Components
from mvprune_service.changes import Changes
from mvprune_service.config import Settings
from mvprune_service.control.ownership import Ownership
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.executors.base import ExecutorUnavailable
from mvprune_service.stores.base import StoreUnavailable

from .database import SimulatedDatabase, Storage
from .neighbours import Cluster, Objects, SimulatedExecutor, SimulatedStore
from .wire import CURRENT, FaultKind, Process, Wire

KEY = b"k" * 32
HEARTBEAT_SECONDS, LEASE_SECONDS = 8.0, 20.0
_INTERVALS = {
    "sweeps": 15.0,
    "scheduler": 15.0,
    "dispatcher": 15.0,
    "watchdog": 10.0,
    "finalizer": 15.0,
    "logs": 20.0,
    "pace": 40.0,
}
_WEBHOOK_SECONDS = 5.0
_JANITOR = {"seldom": 60.0, "often": 10.0}
ACTING: contextvars.ContextVar[int] = contextvars.ContextVar("acting", default=0)
"""The fencing token of the worker for whose call a server does something; 0: for no worker's."""
_CALL_SECONDS = 15.0  # that a caller waits for an answer
_EXPECTED = (DatabaseUnavailable, StoreUnavailable, ExecutorUnavailable, asyncio.CancelledError)


class Unreachable(Exception):
    """No answer came."""


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code


class _Origin(NamedTuple):
    """Where a call comes from."""

    secret: str

    def invocation_metadata(self) -> Any:
        return (("authorization", f"Bearer {self.secret}"),) if self.secret else ()

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


@cache
def _settings(number: int) -> Settings:
    return Settings(
        home=Path(mkdtemp(prefix=f"mvprune-simulation-{number}-")),
        executor="local",
        heartbeat_seconds=HEARTBEAT_SECONDS,
        lease_seconds=LEASE_SECONDS,
        quarantine_days=0,
        request_days=3_650,
        checkpoint_days=3_650,
    )


class _InOrder(dict[Any, None]):
    """A set whose members come in the order in which they were added, not in that of their addresses."""

    def add(self, member: Any) -> None:
        self[member] = None

    def discard(self, member: Any) -> None:
        self.pop(member, None)


class Server:
    """One server. It can be killed, which leaves the database, the store and the cluster."""

    def __init__(self, number: int, storage: Storage, objects: Objects, cluster: Cluster, wire: Wire) -> None:
        self.number = number
        self._parts = storage, objects, cluster, wire
        self._wire = wire
        self._started = 0
        self.announced: Callable[[set[str] | None], None] = lambda _: None
        self.process = wire.process("")
        self.process.dead = True
        self.skew_us = 0
        self.cleans = ""
        self.sends = False  # to a webhook

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self.process.dead

    def start(self) -> None:
        """Makes new objects of everything, and starts the loops."""
        self._started += 1
        self.process = self._wire.process(f"server-{self.number}.{self._started}")
        self.process.skew_us = self.skew_us
        self.context = contextvars.copy_context()
        self._wire.say(f"{self.process.name} starts")
        self.context.run(self._build)

    def _build(self) -> None:
        CURRENT.set(self.process)
        storage, objects, cluster, wire = self._parts
        db, store, changes = SimulatedDatabase(storage, wire), SimulatedStore(objects, wire), Changes()
        changes._all, changes._moves = _InOrder(), _InOrder()  # type: ignore[assignment]

        def commit(uids: set[str] | None, are_new: bool) -> None:
            self.announced(uids)
            changes.announce(uids, are_new)

        db.on_commit = commit
        db.hear(changes.announce)
        resources: Any = SimpleNamespace(
            db=db,
            store=store,
            ownership=Ownership(db, store),
            executor=SimulatedExecutor(cluster, wire),
            changes=changes,
            key=KEY,
            roots=Roots(),
            address="127.0.0.1:1",
            worker_address="127.0.0.1:2",
        )
        self.components = Components.build(_settings(self.number), resources)
        for loop in self.components.schedule:
            interval = _JANITOR.get(self.cleans) if loop.name == "janitor" else _INTERVALS.get(loop.name)
            if loop.name == "webhooks" and self.sends:
                interval = _WEBHOOK_SECONDS
            if interval is not None:
                self.components.loops.start(loop._replace(interval=interval))

    def answer(self, port: str, method: str, requests: Sequence[Any], secret: str) -> asyncio.Task[Any]:
        """Begins a call."""
        calls = self.components.workers if port == "workers" else self.components.clients
        found = calls.method(method)
        assert found is not None, f"{method} is of no service"
        arriving = [type(one).FromString(one.SerializeToString()) for one in requests]

        async def receive() -> Any:
            return arriving.pop(0) if arriving else END

        async def call() -> Any:
            ACTING.set(requests[0].lease.fencing_token if port == "workers" else 0)
            try:
                return await calls.call(found, _Origin(secret), receive)
            except ApiError as error:
                raise Refused(error.code, error.message) from None

        return self.context.run(contextvars.copy_context).run(asyncio.get_running_loop().create_task, call())


class Channel:
    """How the current process calls servers."""

    def __init__(self, wire: Wire, servers: Sequence[Server]) -> None:
        self._wire = wire
        self._servers = servers
        self.away = False  # for workers
        self.began: Callable[[str, Sequence[Message]], None] = lambda method, requests: None
        self.ended: Callable[[str, Sequence[Message]], None] = lambda method, requests: None

    async def call(self, port: str, method: str, *requests: Message, secret: str = "") -> Any:
        """The answer. Raises Unreachable, Refused."""
        process = CURRENT.get()
        answer: asyncio.Future[Any] = self._wire.loop.create_future()
        fault = process.fault_of("call")
        late = process.chance.uniform(0, _CALL_SECONDS) if fault is FaultKind.LATE else 0.0

        def arrive() -> None:
            if fault is FaultKind.REFUSED or process.dead or (self.away and port == "workers"):
                return self._wire.say(f"{process.name}: {method} does not arrive")
            if fault is FaultKind.CRASH_BEFORE:
                self._wire.say(f"{process.name}: killed in {method}")
                process.kill()
            alive = [server for server in self._servers if server.alive]
            if not alive:
                return None
            server = alive[process.chance.randrange(len(alive))]
            self._wire.say(f"{process.name}: {method} arrives at {server.process.name}")
            self.began(method, requests)
            task = server.answer(port, method, requests, secret)
            task.add_done_callback(lambda task: self._answered(task, process, method, requests, fault, answer))
            return None

        self._wire.loop.call_later(process.delay() + late, arrive)
        if fault is FaultKind.TWICE:
            self._wire.loop.call_later(process.chance.uniform(0, 2 * _CALL_SECONDS), arrive)
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await answer
        except TimeoutError:
            raise Unreachable from None

    def _answered(
        self,
        task: asyncio.Task[Any],
        process: Process,
        method: str,
        requests: Sequence[Message],
        fault: FaultKind | None,
        answer: asyncio.Future[Any],
    ) -> None:
        self.ended(method, requests)
        if task.cancelled() or fault is FaultKind.LOST:
            return
        error = task.exception()
        if error and (not isinstance(error, Refused) or error.code is grpc.StatusCode.INTERNAL):
            self._wire.fail(AssertionError(f"{method}: {error!r}"))
        if fault is FaultKind.CRASH_AFTER:
            self._wire.say(f"{process.name}: killed after {method}")
            process.kill()

        def arrive() -> None:
            if answer.done() or process.dead:
                return
            if error is None:
                answer.set_result(task.result())
            elif isinstance(error, Refused):
                answer.set_exception(error)

        self._wire.loop.call_later(process.delay(), arrive)


class Complaints(logging.Handler):
    """Ends the history when the product logs an exception that no fault explains."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(logging.ERROR)
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not _is_expected(error):
            self._wire.fail(AssertionError(f"{record.getMessage()}: {error!r}"))
            self._wire.failure.__cause__ = error  # type: ignore[union-attr]


def _is_expected(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_expected, error.exceptions))
    return isinstance(error, _EXPECTED)
