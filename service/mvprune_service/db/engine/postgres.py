"""PostgreSQL: transactions of several replicas at once, and notifications between them.

Writes run at READ COMMITTED: they lock the rows that they decide about, and after waiting for a lock they see the row
as it is then. At a stricter level this would be a conflict. Reads are one snapshot (REPEATABLE READ), as in SQLite.
"""

from __future__ import annotations

import logging
import random
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError

from mvprune_service.db.engine.outages import DatabaseUnavailable, is_rolled_back, is_transient
from mvprune_service.fair import FairThreads
from mvprune_service.observability import metrics

log = logging.getLogger(__name__)
T = TypeVar("T")

CHANNEL = "mvprune"
_LISTENER = "mvprune listener"  # name of a session that each server has while it serves
_WRITERS = 8
_WRITERS_OF_EACH = 4  # project: its transactions may wait for each other's locks
_SPARE = 1  # connection for a migration
_POOL_SECONDS = 5
_PAUSES = (0.02, 0.1, 0.4)  # seconds, before a transaction is tried again
_PATIENCE = 5.0  # seconds, after which it is not tried again: each connection to a silent host takes long
_PAYLOAD = 7900  # bytes; PostgreSQL takes less than 8000
_RECONNECT = (0.1, 10.0)  # seconds, doubled from the first to the last
# A replica that hangs must not hold locks or connections for long.
_SESSION = """
SET statement_timeout = '30s';
SET lock_timeout = '5s';
SET idle_in_transaction_session_timeout = '15s'
"""
# A peer that has disappeared is noticed after about ten seconds.
_CONNECT: dict[str, Any] = {
    "application_name": "mvprune",
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_LISTENERS = text(
    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name LIMIT 1"
)
_PID = text("SELECT pg_backend_pid()")
_LOOKS = 3  # for a pooler: other clients of it may disturb one
_NOTIFY = text("SELECT pg_notify(:channel, :payload)")


class Postgres:
    """A Backend on a pool of connections."""

    creating = _WRITERS // 2  # those of one project wait for each other

    def __init__(self, url: URL, readers: int) -> None:
        self.engine = create_engine(
            url,
            connect_args=_CONNECT,
            pool_size=readers + _WRITERS + _SPARE,
            max_overflow=0,
            pool_timeout=_POOL_SECONDS,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
        )
        event.listen(self.engine, "connect", _configure)
        event.listen(self.engine, "checkin", _forget_read_only)
        self._reading = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._writers = FairThreads("db-write", _WRITERS, _WRITERS_OF_EACH)
        self._origin = uuid.uuid4().hex  # of notifications: a process ignores its own
        self._listener: _Listener | None = None
        self._closing = threading.Event()

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Backend.read."""

        def once() -> T:
            with self._reading.connect() as conn:
                return work(conn)

        return self._again_if_transient(once)

    def submit(
        self, owner: str, work: Callable[[Connection], T], done: Callable[[T | None, Exception | None], None]
    ) -> None:
        """See Backend.submit. `work` runs again if that is safe: before its commit was requested, or after PostgreSQL
        reported that the commit failed."""

        def run() -> None:
            try:
                result = self._again_if_transient(lambda: self._write(work))
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

        self._writers.submit(owner, run)

    def _write(self, work: Callable[[Connection], T]) -> T:
        started = time.perf_counter()
        with self.engine.connect() as conn:
            transaction = conn.begin()
            result = work(conn)
            try:
                transaction.commit()
            except DBAPIError as error:
                if is_rolled_back(error):
                    raise
                raise DatabaseUnavailable("the answer to a commit was lost") from error
            metrics.committed(1, time.perf_counter() - started)
            return result

    def notify(self, conn: Connection, uids: Iterable[str]) -> None:
        """See Backend.notify."""
        for payload in _payloads(self._origin, uids):
            conn.execute(_NOTIFY, {"channel": CHANNEL, "payload": payload})

    def listen(self, heard: Callable[[set[str] | None], None]) -> None:
        """See Backend.listen."""
        if self._listener is None:
            self._listener = _Listener(self.engine, self._origin, heard)

    def witness_commits(self) -> None:
        """See Backend.witness_commits: PostgreSQL checks its WAL and pages itself."""

    def close(self) -> None:
        """See Backend.close."""
        if self._listener is not None:
            self._listener.close()
        self._closing.set()
        self._writers.shutdown()
        self.engine.dispose()

    def _again_if_transient(self, run: Callable[[], T]) -> T:
        """Runs it up to four times. Once the server is closing, what fails is not tried again: a thousand writes may
        wait, and the database may be away for good."""
        began = time.monotonic()
        for pause in _PAUSES:
            try:
                return run()
            except DBAPIError as error:
                late = self._closing.is_set() or time.monotonic() - began > _PATIENCE
                if late or not is_transient(error):
                    raise
            self._closing.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311
        return run()


class _Listener:
    """A thread that receives what other replicas commit. It reconnects for ever. After each connection it reports None,
    since earlier notifications are lost."""

    def __init__(self, engine: Engine, origin: str, heard: Callable[[set[str] | None], None]) -> None:
        self._engine = engine
        self._origin = origin
        self._heard = heard
        self._wake, self._woken = socket.socketpair()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="db-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        self._wake.close()
        self._thread.join()
        self._woken.close()

    def _run(self) -> None:
        pause = _RECONNECT[0]
        while not self._stopping.is_set():
            try:
                with self._connect() as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._heard(None)
                    pause = _RECONNECT[0]
                    self._forward(connection)
            except Exception as error:
                log.warning("not listening to the database (%s); trying again in %.1f s", type(error).__name__, pause)
                self._stopping.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311
                pause = min(2 * pause, _RECONNECT[1])

    def _connect(self) -> psycopg.Connection[Any]:
        _, options = self._engine.dialect.create_connect_args(self._engine.url)
        own: dict[str, Any] = {"autocommit": True, "application_name": _LISTENER}
        return psycopg.connect(**{**options, **_CONNECT, **own})

    def _forward(self, connection: psycopg.Connection[Any]) -> None:
        ready = select.poll()  # select.select takes no descriptor above 1023
        for descriptor in (connection.fileno(), self._woken.fileno()):
            ready.register(descriptor, select.POLLIN)
        while not self._stopping.is_set():
            uids: set[str] = set()
            for notification in connection.notifies(timeout=0):
                origin, *changed = notification.payload.split(",")
                if origin != self._origin:
                    uids.update(changed)
            if uids:
                self._heard(uids)
            ready.poll()


def is_served(engine: Engine) -> bool:
    """Whether servers use the database now."""
    with engine.connect() as conn:
        return conn.execute(_LISTENERS, {"name": _LISTENER}).first() is not None


def shares_sessions(engine: Engine) -> bool:
    """Whether a pooler gives each transaction any session, so that a connection has none of its own: settings and
    LISTEN would be lost, and prepared statements would be another connection's."""
    with engine.connect() as one, engine.connect() as other:
        for _ in range(_LOOKS):
            first = one.execute(_PID).scalar_one()
            one.rollback()
            # This transaction stays open. What `one` has released goes to it, or a third session goes to `one`.
            if other.execute(_PID).scalar_one() == first or one.execute(_PID).scalar_one() != first:
                return True
            one.rollback()
            other.rollback()
    return False


def _payloads(origin: str, uids: Iterable[str]) -> Iterator[str]:
    """`ORIGIN,UID,UID,…` in pieces that PostgreSQL takes."""
    payload = origin
    for uid in sorted(uids):
        if len(payload) + 1 + len(uid) > _PAYLOAD:
            yield payload
            payload = origin
        payload += f",{uid}"
    yield payload


def _configure(connection: psycopg.Connection[Any], _record: Any) -> None:
    connection.execute(_SESSION)
    connection.commit()


def _forget_read_only(connection: psycopg.Connection[Any] | None, _record: Any) -> None:
    """After a read SQLAlchemy requests READ WRITE, which would override default_transaction_read_only."""
    if connection is not None and not connection.closed:
        connection.read_only = None
