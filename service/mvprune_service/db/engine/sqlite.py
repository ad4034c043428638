"""SQLite: one writer thread with BEGIN IMMEDIATE and group commit, readers beside it (WAL, synchronous=FULL)."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool

from mvprune_service.db.engine.integrity import Count, Witness, check_uid
from mvprune_service.db.engine.statements import on_driver
from mvprune_service.fair import FairQueue
from mvprune_service.observability import metrics
from mvprune_service.private_files import make_private

log = logging.getLogger(__name__)
T = TypeVar("T")
_Write = tuple[Callable[[Connection], Any], Callable[[Any, Exception | None], None]]
_Item = tuple[str, _Write]  # with its owner

_GROUP = 64  # writes that may share one commit
_PATIENCE = 0.02  # seconds that a group waits for more
_LONG = 0.01  # seconds after which a group takes no more writes
_COUNT = "UPDATE installation SET generation = generation + 1 RETURNING uid, generation"
_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")


class Sqlite:
    """A Backend on one file."""

    creating = 2 * _GROUP  # one group is written, and the next one waits

    def __init__(self, url: URL, readers: int) -> None:
        _make_private(Path(str(url.database)))
        self.engine = _engine(url, readers, "BEGIN")
        self._here = _engine(url, 1, "", busy_milliseconds=50)
        self._connection: Connection | None = None
        self._writer = _GroupWriter(_engine(url, 1, "BEGIN IMMEDIATE"))

    def read(self, work: Callable[[Connection], T]) -> T:
        """See Backend.read."""
        with self.engine.begin() as conn:
            return work(conn)

    def look_up(self, work: Callable[[Connection], T]) -> T:
        """Runs `work`, one fast statement, on this thread, which is the event loop's: switching to another
        thread and back takes several times as long."""
        if self._connection is None:
            self._connection = self._here.connect()
        return work(self._connection)

    def submit(
        self, owner: str, work: Callable[[Connection], T], done: Callable[[T | None, Exception | None], None]
    ) -> None:
        """See Backend.submit."""
        self._writer.submit((owner, (work, done)))

    def notify(self, conn: Connection, uids: Iterable[str]) -> None:
        """See Backend.notify: no other process uses the file."""

    def listen(self, heard: Callable[[set[str] | None], None]) -> None:
        """See Backend.listen."""

    def witness_commits(self) -> None:
        """See Backend.witness_commits, and integrity.py. Raises BadFile."""
        self._writer.witness(Path(str(self.engine.url.database)).resolve())

    def close(self) -> None:
        """See Backend.close."""
        self._writer.close()
        if self._connection is not None:
            self._connection.close()
        self._here.dispose()
        self.engine.dispose()


class _Spoilt(Exception):
    """The changes of a transaction so far cannot be kept."""


class _GroupWriter:
    """One thread that owns the writing connection. Writes that wait at the same time share a commit. Those of an owner
    whose last one took long have commits of their own, so that nobody else waits for them. If one of several writes
    fails after it has changed something, all run again, each in a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: FairQueue[_Write] = FairQueue()
        self._wanted = 1  # how many must wait before the thread is woken
        self._slow: set[str] = set()  # owners whose last write took long
        self._closing = False
        self._witness: Witness | None = None
        self._enough = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="db-write", daemon=True)
        self._thread.start()

    def submit(self, item: _Item) -> None:
        with self._enough:
            self._waiting.put(*item)
            if len(self._waiting) >= self._wanted:
                self._enough.notify()

    def witness(self, file: Path) -> None:
        """From now on commits are counted, and the count is written to the witness of the file. Raises BadFile."""
        with self._engine.begin() as conn:
            count = _count(conn.connection.dbapi_connection)
            check_uid(file, count)
        witness = Witness(file)
        try:
            witness.write(count)
        except OSError as error:
            log.warning("%s cannot be written, so lost commits go unnoticed: %s", witness.path, error.strerror)
        else:
            self._witness = witness

    def close(self) -> None:
        with self._enough:
            self._closing = True
            self._enough.notify()
        self._thread.join()
        if self._witness is not None:
            self._witness.close()
        self._engine.dispose()

    def _run(self) -> None:
        writes = 1
        while group := self._next_group(writes):
            started = time.perf_counter()
            writes = self._commit(group)
            metrics.committed(writes, time.perf_counter() - started)

    def _next_group(self, answered: int) -> list[_Item]:
        """The waiting writes, as soon as there is one; [] after `close`.

        It waits a moment for the callers of the last group too, who were just answered and may write again: a commit of
        thirty writes costs about as much as a commit of one, and the threads switch at each.
        """
        with self._enough:
            wanted = min(answered + len(self._waiting), _GROUP)
            self._wait_for(1, None)
            self._wait_for(wanted, _PATIENCE)
            group = [first] if (first := self._waiting.take()) else []
            while group and group[0][0] not in self._slow and len(group) < _GROUP:
                if not (item := self._waiting.take(lambda owner: owner not in self._slow)):
                    break
                group.append(item)
            metrics.waiting_writes.set(len(self._waiting))
        return group

    def _wait_for(self, wanted: int, seconds: float | None) -> None:
        self._wanted = wanted
        self._enough.wait_for(lambda: self._closing or len(self._waiting) >= wanted, seconds)

    def _commit(self, group: list[_Item]) -> int:
        """Does writes of a group, and returns how many. The others wait again."""
        try:
            done = self._transact(group)
        except _Spoilt:
            for item in group:
                self._transact([item])
            return len(group)
        with self._enough:
            for owner, write in reversed(group[done:]):
                self._waiting.put_back(owner, write)
        return done

    def _transact(self, group: list[_Item]) -> int:
        """Does these writes in one transaction, until that has taken long, and answers their callers. Returns how many
        it did. Raises _Spoilt if one of several writes failed after it had changed something: then nothing is kept."""
        outcomes: list[tuple[Any, Exception | None]] = []
        count: Count | None = None
        took: list[float] = []
        try:
            with self._engine.begin() as conn:
                driver: Any = conn.connection.dbapi_connection
                changes_before = driver.total_changes
                for _, (work, _) in group:
                    started, changes = time.perf_counter(), driver.total_changes
                    try:
                        outcomes.append((work(conn), None))
                    except Exception as error:
                        outcomes.append((None, error))
                        if not driver.in_transaction:  # SQLite rolled everything back: a full disk, a failing one
                            raise
                        if driver.total_changes != changes:
                            raise _Spoilt from error
                    took.append(time.perf_counter() - started)
                    if sum(took) > _LONG:
                        break
                if self._witness is not None and driver.total_changes != changes_before:
                    count = _count(driver)
            if self._witness is not None and count is not None:  # before the callers are answered
                self._witness.write(count)
        except _Spoilt:
            if len(group) > 1:
                raise
        except Exception as error:  # no write happened
            failures = [failure for _, failure in outcomes] + [None] * (len(group) - len(outcomes))
            outcomes = [(None, failure or error) for failure in failures]
        with self._enough:
            for (owner, _), seconds in zip(group, took, strict=False):  # none of one that failed
                self._waiting.charge(owner, seconds)
                (self._slow.add if seconds > _LONG else self._slow.discard)(owner)
        for (_, (_, done)), (result, failure) in zip(group, outcomes, strict=False):  # the rest was not begun
            done(result, failure)
        return len(outcomes)


def _count(driver: Any) -> Count:
    """Counts the commit that follows."""
    return Count(*driver.execute(_COUNT).fetchone())


def _json(value: Any) -> str:
    return "{}" if value == {} else json.dumps(value)  # most maps are empty


def _read_json(text: str) -> Any:
    return {} if text == "{}" else json.loads(text)


def _make_private(file: Path) -> None:
    """SQLite creates the other files with the mode of the database."""
    make_private(file)
    for suffix in ("-wal", "-shm"):
        if (other := file.with_name(file.name + suffix)).exists():
            make_private(other)


def _engine(url: URL, size: int, begin: str, busy_milliseconds: int = 30_000) -> Engine:
    """An engine whose transactions start with `begin`; without one, each statement is a transaction."""
    engine = create_engine(
        url, poolclass=QueuePool, pool_size=size, json_serializer=_json, json_deserializer=_read_json
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver begins no transactions: see _begin
        cursor = connection.cursor()
        for pragma in (f"busy_timeout={busy_milliseconds}", *_PRAGMAS):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(conn: Connection) -> None:
        if begin:
            on_driver(conn, begin)

    return engine
