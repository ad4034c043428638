"""Transactions: `read` and `write`, the same for SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from mvprune_service.clock import Clock, system_clock
from mvprune_service.db.engine.mailbox import Mailbox
from mvprune_service.db.engine.outages import DatabaseUnavailable, is_away
from mvprune_service.db.engine.sqlite import Sqlite
from mvprune_service.failpoints import failpoint
from mvprune_service.fair import OWNER, FairThreads

log = logging.getLogger(__name__)
T = TypeVar("T")
P = ParamSpec("P")

_READERS = 8
_POSTGRES = ("postgresql", "postgresql+psycopg")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*")
_READERS_OF_EACH = 4  # project
_RULE = "the URL of the database must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


class BadDatabase(Exception):
    """The URL of the database cannot be used; the text says why. It contains no password."""


@dataclass
class Tx:
    """An open transaction. Statements run on `conn`, at the time `now`. `changed` collects uids of jobs to announce,
    `new` those of them that were created and have not changed since, and `after` functions to call, on any thread,
    after the commit."""

    conn: Connection
    now: int
    changed: set[str] = field(default_factory=set)
    new: set[str] = field(default_factory=set)
    after: list[Callable[[], None]] = field(default_factory=list)


RIDER: ContextVar[Callable[[Tx, object], None] | None] = ContextVar("rider", default=None)
"""Writes something of its own in each write transaction of the current task, after its work, whose result it gets."""


class Backend(Protocol):
    """The operations that differ between SQLite and PostgreSQL."""

    engine: Engine
    creating: int
    """Transactions that create jobs, at once. More of them would keep out others, such as heartbeats."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a read transaction: one snapshot. Blocks."""
        ...

    def submit(
        self, owner: str, work: Callable[[Connection], T], done: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Runs `work` in a write transaction on another thread, when it is the turn of `owner` (see fair.py). Then
        calls `done` there, which must not raise: with the result of `work` after the commit, or with the error because
        of which nothing was written."""
        ...

    def notify(self, conn: Connection, uids: Iterable[str]) -> None:
        """Notifies other processes, when the transaction of `conn` is committed, that these jobs changed."""
        ...

    def listen(self, heard: Callable[[set[str] | None], None]) -> None:
        """Calls `heard`, on another thread, with the jobs that other processes report as changed; with None if a
        notification may have been missed, as before the first one."""
        ...

    def witness_commits(self) -> None:
        """From now on the next start notices if a commit was lost whose caller had been answered."""
        ...

    def close(self) -> None:
        """Finishes accepted writes, closes connections."""
        ...


class Database:
    """Runs functions in transactions, off the event loop. Those of several projects take turns.

    `on_commit` is called on the event loop with the uids of the jobs that committed transactions changed, and whether
    all of them are new jobs; with None when any may have changed. `url` is sqlite:///FILE or postgresql://…; raises
    BadDatabase for others.
    """

    def __init__(self, url: str, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._readers = FairThreads("db-read", _READERS, _READERS_OF_EACH)
        self._backend = _open(_parse(url))
        self._mail: Mailbox | None = None
        self.on_commit: Callable[[set[str] | None, bool], None] = lambda uids, are_new: None

    @property
    def engine(self) -> Engine:
        """For migrations."""
        return self._backend.engine

    @property
    def creating(self) -> int:
        """See Backend.creating."""
        return self._backend.creating

    async def read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work(connection, …)` in a read transaction: everything it reads is of one moment. On PostgreSQL it may
        run more than once. Raises DatabaseUnavailable."""

        def bound(conn: Connection) -> T:
            return work(conn, *args, **kwargs)

        return await _answer(asyncio.wrap_future(self._readers.submit(OWNER.get(), lambda: self._backend.read(bound))))

    def read_here(self, work: Callable[[Connection], T]) -> T:
        """Like `read`, on this thread, which is not the event loop's. Blocks."""
        with _away():
            return self._backend.read(work)

    async def look_up(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `read`, for one statement that is fast because of an index."""

        def bound(conn: Connection) -> T:
            return work(conn, *args, **kwargs)

        if isinstance(self._backend, Sqlite):
            with suppress(OperationalError):  # the database is busy
                return self._backend.look_up(bound)
        return await self.read(work, *args, **kwargs)

    async def write(self, work: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs `work(tx, …)` in a write transaction of its own, and returns after the commit. `work` must do no other
        I/O, and may run more than once. If it raises, its changes are rolled back, and the exception is raised here.
        Raises DatabaseUnavailable: then the write may or may not have happened."""

        name, rider = _name(work), RIDER.get()

        def bound(conn: Connection) -> tuple[T, Tx]:
            tx = Tx(conn, self._clock())
            result = work(tx, *args, **kwargs)
            if rider is not None:
                rider(tx, result)
            if tx.changed:
                self._backend.notify(conn, tx.changed)
            failpoint(f"{name}.before_commit")
            return result, tx

        mailbox = self._mailbox()
        answer: asyncio.Future[T] = mailbox.loop.create_future()

        # The change is announced even if the caller was cancelled meanwhile.
        def done(outcome: tuple[T, Tx] | None, error: Exception | None) -> None:
            if outcome is None:
                mailbox.put(answer, None, error)
                return
            result, tx = outcome
            if tx.changed:
                mailbox.announce(self.on_commit, tx.changed, are_new=tx.changed == tx.new)
            try:
                for call in tx.after:
                    call()
            except Exception:  # the transaction is committed all the same
                log.exception("after a commit")
            mailbox.put(answer, result, None)

        self._backend.submit(OWNER.get(), bound, done)
        written = await _answer(answer)
        failpoint(f"{name}.after_commit")
        return written

    def _mailbox(self) -> Mailbox:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        if self._mail is None or self._mail.loop is not loop:
            self._mail = Mailbox(loop)
        return self._mail

    def listen(self) -> None:
        """From now on `on_commit` is called for commits of other processes too. Call this on the event loop."""
        loop = asyncio.get_running_loop()

        def heard(uids: set[str] | None) -> None:
            loop.call_soon_threadsafe(self.on_commit, uids, False)

        self._backend.listen(heard)

    def witness_commits(self) -> None:
        """See Backend.witness_commits. Call it when the schema is the newest."""
        self._backend.witness_commits()

    def close(self) -> None:
        """Finishes accepted writes, closes connections."""
        self._readers.shutdown()
        self._backend.close()


def _parse(url: str) -> URL:
    """The parts of a URL. Raises BadDatabase, whose text has nothing of what may be a password."""
    scheme, colon, rest = url.partition("://")
    if colon and scheme not in ("sqlite", *_POSTGRES) and _SCHEME.fullmatch(scheme):
        remedy = f"; write postgresql:// in place of {scheme}://" if "postgres" in scheme else ""
        raise BadDatabase(f"{_RULE}, got one with {scheme}:{remedy}")
    hosts = re.split("[/?]", rest.rpartition("@")[2])[0]
    if scheme in _POSTGRES and "," in hosts:
        several = "&".join(f"host={host}" for host in hosts.split(","))
        raise BadDatabase(f"{_RULE}, with one HOST, got {hosts}; for several, write @/DATABASE?{several}")
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
        raise BadDatabase(f"{_RULE}, got none of them") from None
    if "@" in (parsed.host or ""):
        raise BadDatabase(f"{_RULE}; in USER and PASSWORD write %40 for @, got a URL with several @")
    if scheme in _POSTGRES:
        return parsed.set(drivername=_POSTGRES[1])
    if parsed.database in (None, "", ":memory:") or parsed.query:
        raise BadDatabase(f"{_RULE}, got {parsed}")
    return parsed


def sqlite_url(file: Path) -> str:
    """The URL of an SQLite file, whatever characters its path has."""
    return URL.create("sqlite", database=str(file)).render_as_string()


def read_only_url(file: Path, **options: str) -> URL:
    """The URL of an SQLite file that is only read; `file` is absolute.

    Args:
        options: parameters of SQLite's URI.
    """
    return URL.create("sqlite", database=file.as_uri(), query={"mode": "ro", **options, "uri": "true"})


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite database; None for PostgreSQL. Raises BadDatabase."""
    parsed = _parse(url)
    if parsed.drivername != "sqlite":
        return None
    file = Path(str(parsed.database)).resolve()
    if not file.parent.is_dir():
        raise BadDatabase(f"the folder of the database must exist, got {file.parent}")
    return file


def _name(work: Callable[..., object]) -> str:
    """The name of a write for failpoints: the function, or the method that it is defined in."""
    return work.__qualname__.partition(".<locals>")[0].rpartition(".")[2]


def _open(url: URL) -> Backend:
    if url.drivername == "sqlite":
        return Sqlite(url, _READERS)
    try:
        from mvprune_service.db.engine.postgres import Postgres
    except ModuleNotFoundError as error:
        raise BadDatabase("PostgreSQL needs its driver: pip install 'mvprune[postgres]'") from error
    return Postgres(url, _READERS)


async def _answer(future: asyncio.Future[T]) -> T:
    with _away():
        return await future


@contextmanager
def _away() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        if is_away(error):
            raise DatabaseUnavailable(type(getattr(error, "orig", error)).__name__) from error
        raise
