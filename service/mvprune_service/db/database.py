"""Engine and transactions.

SQLite: one writer thread with BEGIN IMMEDIATE and group commit, readers beside it (WAL, synchronous=FULL).
PostgreSQL: ordinary transactions from a pool. Callers see `read` and `write`, and know nothing else.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.pool import QueuePool

from mvprune_service.clock import Clock, system_clock

T = TypeVar("T")
P = ParamSpec("P")

_GROUP = 64  # writes that may share one commit
_READERS = 8


@dataclass
class Tx:
    """An open transaction: statements run on `conn`, at time `now`; `changed` collects uids of jobs to announce."""

    conn: Connection
    now: int
    changed: set[str] = field(default_factory=set)


class Database:
    """Runs functions in transactions, off the event loop.

    `on_commit` is called on the event loop with the uids of the jobs that a committed transaction changed.
    """

    def __init__(self, url: str, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._sqlite = make_url(url).get_backend_name() == "sqlite"
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="db-read")
        self.on_commit: Callable[[set[str]], None] = lambda _: None
        if self._sqlite:
            self.engine = _sqlite_engine(url, immediate=False)
            self._writer: _GroupWriter | None = _GroupWriter(_sqlite_engine(url, immediate=True), clock)
        else:
            self.engine = create_engine(url, pool_size=_READERS, pool_pre_ping=True)
            self._writer = None

    async def read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work(connection, …)` in a read transaction."""

        def run() -> T:
            with self.engine.connect() as conn:
                return work(conn, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._readers, run)

    async def write(self, work: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work(tx, …)` in a write transaction of its own; returns after the commit. `work` must do no other
        I/O. An exception rolls its changes back, and is raised here."""

        def bound(tx: Tx) -> T:
            return work(tx, *args, **kwargs)

        if self._writer:
            result, changed = await asyncio.wrap_future(self._writer.submit(bound))
        else:
            result, changed = await asyncio.get_running_loop().run_in_executor(self._readers, self._write_now, bound)
        if changed:
            self.on_commit(changed)
        return result

    def _write_now(self, work: Callable[[Tx], T]) -> tuple[T, set[str]]:
        with self.engine.begin() as conn:
            tx = Tx(conn, self._clock())
            return work(tx), tx.changed

    def close(self) -> None:
        """Finishes accepted writes, closes connections."""
        if self._writer:
            self._writer.close()
        self._readers.shutdown()
        self.engine.dispose()


class _GroupWriter:
    """One thread that owns the writing connection. Writes that wait together are committed together, each in its
    own savepoint, so that one failing leaves the others alone."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._queue: queue.SimpleQueue[tuple[Callable[[Tx], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="db-write", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Tx], T]) -> Future[tuple[T, set[str]]]:
        future: Future[Any] = Future()
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
            self._commit([item for item in batch if item is not None])

    def _commit(self, batch: list[tuple[Callable[[Tx], Any], Future[Any]]]) -> None:
        batch = [(work, future) for work, future in batch if future.set_running_or_notify_cancel()]
        if not batch:
            return
        done: list[tuple[Future[Any], Any]] = []
        failed: list[tuple[Future[Any], BaseException]] = []
        try:
            with self._engine.begin() as conn:
                for work, future in batch:
                    try:
                        with conn.begin_nested():
                            tx = Tx(conn, self._clock())
                            done.append((future, (work(tx), tx.changed)))
                    except Exception as error:
                        failed.append((future, error))
        except Exception as error:  # the commit itself: nobody's write happened
            failed += [(future, error) for future, _ in done]
            done = []
            left = {future for _, future in batch} - {future for future, _ in failed}
            failed += [(future, error) for future in left]
        for future, result in done:
            future.set_result(result)
        for future, failure in failed:
            future.set_exception(failure)


def _sqlite_engine(url: str, *, immediate: bool) -> Engine:
    engine = create_engine(url, poolclass=QueuePool, pool_size=1 if immediate else _READERS)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins nothing by itself: see _begin
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        conn.exec_driver_sql("BEGIN IMMEDIATE" if immediate else "BEGIN")

    return engine
