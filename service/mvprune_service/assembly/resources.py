"""The resources of a running server: its home folder, database, store, ports and executor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

import grpc

from mvprune.sources.references import Roots
from mvprune_service.api.access import auth, ports
from mvprune_service.assembly import readable
from mvprune_service.assembly.startup import Sequence, StartError, Step
from mvprune_service.changes import Changes
from mvprune_service.config import Settings
from mvprune_service.control.ownership import Ownership, Standing
from mvprune_service.db import overview
from mvprune_service.db.engine import opening
from mvprune_service.db.engine.database import Database
from mvprune_service.executors import open_executor
from mvprune_service.executors.base import Executor
from mvprune_service.lock import lock
from mvprune_service.secret import load_key
from mvprune_service.stores import open_store
from mvprune_service.stores.base import BlobStore, StoreUnavailable

log = logging.getLogger(__name__)

_MARK_SECONDS = 5.0  # that a start waits for a store


class Resources:
    """The resources of one server. `opening` opens them in an order that it states, and closes them.

    Attributes:
        key: the server's key, from which the credentials of attempts are derived.
        db: the database, at the newest schema.
        changes: announces each commit.
        store: the artifact store; `ownership` compares its marks with the database.
        roots: what clients may let the server read.
        clients: gRPC server of the clients' port, bound and not started; `address` is the port's address.
        workers: gRPC server of the workers' port; `worker_address` is its address.
        executor: starts workers.
    """

    key: bytes
    db: Database
    store: BlobStore
    ownership: Ownership
    roots: Roots
    clients: grpc.aio.Server
    workers: grpc.aio.Server
    executor: Executor

    def __init__(self, settings: Settings, start_cancelled: Callable[[], bool]) -> None:
        self._settings = settings
        self._start_cancelled = start_cancelled
        self.changes = Changes()
        self.address = ""
        self.worker_address = ""

    def opening(self) -> Sequence:
        """The steps that open the resources."""
        return Sequence(
            Step("home folder", self._open_home),  # first: the files of the other steps are in it
            Step("database", self._open_database),
            Step("store", self._open_store),  # after the database, which knows whether the store must exist
            Step("readable folders", self._find_roots),  # after home and database, whose files clients must not read
            Step("ports", self._bind_ports),  # before the executor: that a port is in use is reported at once
            Step("operator token", self._make_operator_token),
            Step("executor", self._open_executor),  # last: a Ray of its own takes about 10 s
        )

    @asynccontextmanager
    async def _open_home(self) -> AsyncIterator[None]:
        """Locks the home folder until the server ends, and loads the key."""
        home = self._settings.home
        in_use = f"another server uses {home} (--home FOLDER for a second one)"
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StartError(
                f"cannot use the home folder {home}: {error.strerror} (--home FOLDER for another)"
            ) from None
        with lock(home / "lock", in_use):
            self.key = load_key(self._settings.key)
            yield

    @asynccontextmanager
    async def _open_database(self) -> AsyncIterator[None]:
        with opening.opened(self._settings.database) as self.db:
            await asyncio.to_thread(opening.prepare, self.db, migrate=self._settings.migrate)
            self.db.on_commit = self.changes.announce
            self.db.listen()
            yield

    @asynccontextmanager
    async def _open_store(self) -> AsyncIterator[None]:
        """Creates the folder of a store only once. A folder that is missing later is on a disk that is not mounted; a
        store created in its place would be hidden when the disk is mounted again."""
        is_used = await self.db.read(overview.has_stored)
        try:
            self.store = open_store(self._settings.store_url, create=not is_used)
        except (ValueError, StoreUnavailable) as error:
            raise StartError(f"{error} (--store URL)") from None
        self.ownership = Ownership(self.db, self.store)
        await self._refuse_older_database()
        yield

    async def _refuse_older_database(self) -> None:
        """If an older copy of the database is put back, or commits are lost, the store has newer marks. A store
        that cannot be reached is checked later, before anything is deleted from it."""
        try:
            found = await asyncio.wait_for(self.ownership.look(), _MARK_SECONDS)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("the marks of the store could not be read: %s", error or "no answer")
            return
        if found.standing is Standing.NEWER:
            raise StartError(
                f"{found.why}: it has lost commits, or is an older backup. Restore a newer backup, or continue with "
                'the database as it is: `mvpctl server adopt-store`; docs/operate.md, "Restore a backup", has the steps'
            )

    @asynccontextmanager
    async def _find_roots(self) -> AsyncIterator[None]:
        self.roots = readable.roots(self._settings)
        yield

    @asynccontextmanager
    async def _bind_ports(self) -> AsyncIterator[None]:
        """Binds both ports. No call is answered before the servers are started."""
        settings = self._settings
        client_tls, worker_tls = ports.tls_files(settings) or (None, None)
        listen = partial(
            ports.listen, allow_remote=settings.allow_remote, max_connections=ports.max_connections(settings)
        )
        async with AsyncExitStack() as bound:
            self.clients, self.address = listen(settings.address, "--address", client_tls)
            bound.push_async_callback(ports.release, self.clients)
            self.workers, self.worker_address = listen(settings.worker_address, "--worker-address", worker_tls)
            bound.push_async_callback(ports.release, self.workers)
            yield

    @asynccontextmanager
    async def _make_operator_token(self) -> AsyncIterator[None]:
        if ports.is_auth_required(self._settings):
            if self._settings.operator_token_file is None:
                await auth.ensure_operator(self.db, self._settings.home)
            else:
                await auth.accept_operator(self.db, self._settings.operator_token_file)
        yield

    @asynccontextmanager
    async def _open_executor(self) -> AsyncIterator[None]:
        self.executor = await asyncio.to_thread(open_executor, self._settings, self._start_cancelled)
        try:
            self.roots = replace(self.roots, private=(*self.roots.private, *self.executor.private_folders))
            yield
        finally:
            await asyncio.to_thread(self.executor.close)
