"""SQLite: one writer thread with BEGIN IMMEDIATE and group commit, readers beside it (WAL, synchronous=FULL)."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from mvprune_service.observability import metrics

T = TypeVar("T")
_Item = tuple[Callable[[Connection], Any], Future[Any]]

_GROUP = 64  # writes that may share one commit
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")


class Sqlite:
    """A Backend on one file."""

    def __init__(self, url: URL, readers: int) -> None:
        self.engine = _engine(url, readers, "BEGIN")
        self._here = _engine(url, 1, "", busy_milliseconds=50)
        self._connection: Connection | None = None
        self._writer = _GroupWriter(_engine(url, 1, "BEGIN IMMEDIATE"))

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Backend.read."""
        with self.engine.connect() as conn:
            return work(conn)

    def look_up(self, work: Callable[[Connection], T]) -> T:
        """Runs `work`, one statement that an index answers at once, on this thread, the event loop's: going to
        another one and back takes several times as long."""
        if self._connection is None:
            self._connection = self._here.connect()
        return work(self._connection)

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        """See Backend.submit."""
        return self._writer.submit(work)

    def tell(self, conn: Connection, uids: Iterable[str]) -> None:
        """See Backend.tell: no other process uses the file."""

    def listen(self, heard: Callable[[set[str] | None], None]) -> None:
        """See Backend.listen."""

    def close(self) -> None:
        """See Backend.close."""
        self._writer.close()
        if self._connection is not None:
            self._connection.close()
        self._here.dispose()
        self.engine.dispose()


class _GroupWriter:
    """One thread that owns the writing connection. Writes that wait together are committed together, each in its
    own savepoint, so that one failing leaves the others alone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._queue: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="db-write", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Connection], T]) -> Future[T]:
        future: Future[T] = Future()
        self._queue.put((work, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._engine.dispose()

    def _run(self) -> None:
        closing = False
        while not closing:
            batch = [self._queue.get()]
            while len(batch) < _GROUP and not self._queue.empty():
                batch.append(self._queue.get())
            closing = None in batch
            metrics.waiting_writes.set(self._queue.qsize())
            self._commit([item for item in batch if item is not None])

    def _commit(self, batch: list[_Item]) -> None:
        if not batch:
            return
        started = time.perf_counter()
        results: dict[Future[Any], Any] = {}
        failures: dict[Future[Any], Exception] = {}
        try:
            with self._engine.begin() as conn:
                for work, future in batch:
                    try:
                        results[future] = _in_savepoint(conn, work)
                    except Exception as error:
                        failures[future] = error
                        if not _is_open(conn):  # SQLite gave up the whole group: a full disk, a failing one
                            raise
        except Exception as error:  # nobody's write happened
            results.clear()
            for _, future in batch:
                failures.setdefault(future, error)
        metrics.committed(len(batch), time.perf_counter() - started)
        for future, result in results.items():
            future.set_result(result)
        for future, failure in failures.items():
            future.set_exception(failure)


def _in_savepoint(conn: Connection, work: Callable[[Connection], T]) -> T:
    driver = _driver(conn)  # SQLAlchemy's begin_nested takes as long as the work itself
    driver.execute("SAVEPOINT work")
    try:
        result = work(conn)
    except Exception:
        if _is_open(conn):
            driver.execute("ROLLBACK TO work")
            driver.execute("RELEASE work")
        raise
    driver.execute("RELEASE work")
    return result


def _driver(conn: Connection) -> Any:
    return conn.connection.driver_connection


def _is_open(conn: Connection) -> bool:
    return bool(_driver(conn).in_transaction)


def _engine(url: URL, size: int, begin: str, busy_milliseconds: int = 30_000) -> Engine:
    """An engine whose transactions start with `begin`; without one, each statement is a transaction."""
    engine = create_engine(url, poolclass=QueuePool, pool_size=size)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself: see _begin
        cursor = connection.cursor()
        for pragma in (f"busy_timeout={busy_milliseconds}", *_PRAGMAS):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        if begin:
            conn.exec_driver_sql(begin)

    return engine
