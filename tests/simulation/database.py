"""A database in memory whose transactions are operations of the simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache, partial
from types import FunctionType
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, update
from sqlalchemy.pool import StaticPool

import mvprune_migrations
from mvprune_service.clock import system_clock
from mvprune_service.db.engine.database import Database
from mvprune_service.db.engine.outages import DatabaseUnavailable
from mvprune_service.db.tables.server import INSTALLATION

from .loop import is_blocking
from .wire import CURRENT, Wire

T = TypeVar("T")


class Storage:
    """The rows. One connection has a transaction for the whole history, which is rolled back in the end; those of
    servers are savepoints in it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.connection: Connection = engine.connect()
        self._history = self.connection.begin()
        self.driver: Any = self.connection.connection.dbapi_connection
        self.changes = 0  # transactions that changed something
        self.listeners: dict[object, Callable[[set[str]], None]] = {}  # by the backend that hears of others' commits
        self.notices: list[tuple[object, set[str]]] = []  # of the open transaction: who wrote, and which jobs
        self._known: dict[Any, tuple[int, Any]] = {}  # results of reads
        self.connection.execute(update(INSTALLATION).values(uid="installation", generation=0, tokens=[]))

    def read(self, work: Callable[[Connection], T]) -> T:
        """A transaction that only reads."""
        return work(self.connection)

    def remembered(self, work: Callable[..., T], args: tuple[Any, ...]) -> Callable[[Connection], T]:
        """The same read. It is done only once until something changes: loops ask the same again and again."""

        def read(conn: Connection) -> T:
            known = self._known.get((work, args))
            if known is None or known[0] != self.changes:
                known = self._known[work, args] = self.changes, work(conn, *args)
            result: T = known[1]
            return result

        return read

    def write(self, work: Callable[[Connection], T]) -> T:
        """A transaction."""
        driver = self.driver
        before = driver.total_changes
        driver.execute("SAVEPOINT one")
        try:
            result = work(self.connection)
        except BaseException:
            driver.execute("ROLLBACK TO one")
            driver.execute("RELEASE one")
            self.notices.clear()
            raise
        driver.execute("RELEASE one")
        self._notify()
        self.changes += driver.total_changes != before
        return result

    def _notify(self) -> None:
        notices, self.notices = self.notices, []
        for writer, uids in notices:
            for backend, heard in self.listeners.items():
                if backend is not writer:
                    heard(uids)

    def close(self) -> None:
        """Forgets everything."""
        self._history.rollback()
        self.connection.close()


@cache
def engine() -> Engine:
    """A database in memory with the schema."""
    made = create_engine("sqlite://", poolclass=StaticPool)

    @event.listens_for(made, "connect")
    def configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(made, "begin")
    def begin(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN")

    mvprune_migrations.upgrade(made)
    return made


class _Backend:
    """A Backend whose transactions happen at one moment each."""

    creating = 100

    def __init__(self, storage: Storage, wire: Wire) -> None:
        self.engine = storage.engine
        self.name = ""  # of the transaction that is submitted next
        self._storage = storage
        self._wire = wire

    def read(self, work: Callable[[Connection], T]) -> T:
        transaction = partial(self._storage.read, work)
        if is_blocking():
            return self._wire.block("read", "read", transaction, DatabaseUnavailable)
        return transaction()

    def submit(
        self, owner: str, work: Callable[[Connection], T], done: Callable[[T | None, Exception | None], None]
    ) -> None:
        self._wire.perform("write", self.name, lambda: self._storage.write(work), done, DatabaseUnavailable)

    def notify(self, conn: Connection, uids: Iterable[str]) -> None:
        self._storage.notices.append((self, set(uids)))

    def listen(self, heard: Callable[[set[str] | None], None]) -> None:
        process = CURRENT.get()

        def hear(uids: set[str]) -> None:
            if not process.dead:
                self._wire.loop.call_later(process.delay(), lambda: process.dead or heard(uids))

        self._storage.listeners[self] = hear
        process.on_death.append(lambda: self._storage.listeners.pop(self, None))

    def witness_commits(self) -> None:
        pass

    def close(self) -> None:
        pass


class _Readers:
    """Takes the place of the threads that read."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def submit(self, owner: str, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()  # it can no longer be cancelled

        def done(result: Any, error: BaseException | None) -> None:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._wire.perform("read", "read", function, done, DatabaseUnavailable)
        return future

    def shutdown(self) -> None:
        pass


class SimulatedDatabase(Database):
    """One server's access to the storage: the product's own, but for threads and files."""

    def __init__(self, storage: Storage, wire: Wire) -> None:
        self._storage = storage
        self._clock = system_clock
        self._readers: Any = _Readers(wire)
        self._backend: Any = _Backend(storage, wire)
        self._mail = None
        self.on_commit = lambda uids, are_new: None

    def hear(self, heard: Callable[[set[str] | None], None]) -> None:
        """Calls `heard` for the other servers' commits."""
        self._backend.listen(heard)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See Database.read."""
        if isinstance(work, FunctionType) and not kwargs and all(isinstance(arg, str | int | None) for arg in args):
            return await super().read(self._storage.remembered(work, args))
        return await super().read(work, *args, **kwargs)

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See Database.write."""
        self._backend.name = _name(work)
        return await super().write(work, *args, **kwargs)


def _name(work: Callable[..., object]) -> str:
    module = getattr(work, "__module__", "").rpartition(".")[2]
    return f"{module}.{getattr(work, '__qualname__', work)}".replace(".<locals>", "")
