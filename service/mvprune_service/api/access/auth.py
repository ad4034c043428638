"""API tokens: how they are made, and which token a call has, also one of an issuer (see issuers.py).

A secret is mvp_TOKENID_ and 32 random bytes. It is shown once. The database has its SHA-256, which is enough for a
random secret.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import secrets
from collections import Counter, OrderedDict
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

import grpc
from sqlalchemy.exc import IntegrityError

from mvprune.common.files import read_secret
from mvprune.common.identifiers import ID
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.api.access.peers import KnownAddresses, Origin, given_with, host_of
from mvprune_service.api.access.principal import EVERY_PROJECT, Principal, Scope
from mvprune_service.api.access.rules import not_shown
from mvprune_service.clock import SECOND, Clock, system_clock
from mvprune_service.db import shown, tokens
from mvprune_service.db.engine.database import Database
from mvprune_service.db.tables.server import TokenRow
from mvprune_service.issuers import Issuers, IssuerUnreachable, TokenRefused

log = logging.getLogger(__name__)

_T = TypeVar("_T")

OPERATOR_TOKEN_FILE = "operator-token"  # noqa: S105 (a name)
_GIVEN = re.compile(rf"mvp_({ID})_[A-Za-z0-9_-]{{32,}}")
_TRUSTED_US = 5 * SECOND  # how long a token is cached: another replica may have revoked it
_REMEMBERED = 10_000  # secrets that are known, and as many that are not
_NOTE_EVERY_US = 60 * SECOND
_SECRET_CHARACTERS = 200
_TOKEN_CHARACTERS = 7_000  # of a JWT: gRPC takes 8 KiB of metadata
_UNKNOWN_RATE, _UNKNOWN_BURST = 5.0, 50.0  # unknown secrets from one address
_SLOW_READS = 2  # look-ups at a time for addresses that have sent more
_SLOW_WAITING = 2_000  # of these that wait
_SLOW_RETRY_SECONDS = 1.0


class BadOperatorToken(Exception):
    """The file does not hold a token that can be accepted; the text says why."""


def new_secret(token_id: str) -> str:
    """A secret for a new token."""
    return f"mvp_{token_id}_{secrets.token_urlsafe(32)}"


def digest(secret: str) -> str:
    """The hash of a secret, as the database stores it."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Authenticator:
    """Finds the token of a call, in a cache if possible.

    Args:
        known: gets the addresses of callers with valid tokens.
        issuers: of other tokens that are valid here.
    """

    def __init__(
        self,
        db: Database,
        clock: Clock = system_clock,
        known: KnownAddresses | None = None,
        issuers: Issuers | None = None,
    ) -> None:
        self._issuers = issuers or Issuers(clock=clock)
        self._addresses = known or KnownAddresses(clock)
        self._db = db
        self._clock = clock
        self._known: OrderedDict[str, tuple[TokenRow, int]] = OrderedDict()  # by digest: the row, and when it was read
        self._missed: OrderedDict[str, int] = OrderedDict()  # by digest: when there was no such token
        self._reading: dict[str, asyncio.Task[TokenRow | None]] = {}  # by digest: callers of one token share a read
        self._noted: dict[str, int] = {}  # by token: the last use that is written
        self._notes: set[asyncio.Task[None]] = set()
        self._unknown = RateLimiter(_UNKNOWN_RATE, _UNKNOWN_BURST, clock, "unknown tokens")
        self._slow = asyncio.Semaphore(_SLOW_READS)
        self._waiting = 0  # look-ups that wait for it
        self._asked: Counter[str] = Counter()  # by address: look-ups under way of secrets that are not known yet

    async def principal(self, origin: Origin) -> Principal:
        """Who calls. Raises ApiError (UNAUTHENTICATED; UNAVAILABLE where an issuer's keys are needed and away)."""
        given = _bearer(origin)
        if given.count(".") == 2:
            return await self._of_issuer(given, origin)
        row = await self._row(digest(given), origin.peer())
        now = self._clock()
        if row is None:
            raise _unauthenticated("BAD_TOKEN", "the server does not know this token")
        if row.revoke_us is not None:
            raise _unauthenticated("TOKEN_REVOKED", f"the token {row.token_id} has been revoked")
        if row.expire_us is not None and row.expire_us <= now:
            raise _unauthenticated("TOKEN_EXPIRED", f"the token {row.token_id} has expired")
        self._note_use(row, now)
        self._addresses.note(origin.peer())
        return Principal(row.token_id, row.project, Scope[row.scope], row.resource or "", row.create_us, row.expire_us)

    async def _of_issuer(self, token: str, origin: Origin) -> Principal:
        try:
            caller = await self._issuers.caller(token)
        except TokenRefused as error:
            raise _unauthenticated(error.reason, str(error)) from None
        except IssuerUnreachable as error:
            raise ApiError(grpc.StatusCode.UNAVAILABLE, "ISSUER_UNREACHABLE", str(error)) from None
        self._addresses.note(origin.peer())
        return Principal(caller.id, caller.project, Scope[caller.scope.upper()], "", caller.issued_us, caller.expire_us)

    async def check_shown(self, principal: Principal, name: str) -> None:
        """Raises ApiError unless a token that is for one job or sweep shows what has this name."""
        shared = ids.parse_job(principal.resource) or ids.parse_sweep(principal.resource)
        if shared is None or not await self._db.read(shown.shows, shared, principal.since_us, name):
            raise not_shown(principal)

    def forget(self) -> None:
        """Reads every token again: one has changed."""
        self._known = OrderedDict((key, (row, 0)) for key, (row, _) in self._known.items())
        self._missed.clear()

    async def close(self) -> None:
        """Waits until the uses of tokens are written."""
        await asyncio.gather(*self._notes)

    async def _row(self, key: str, peer: str) -> TokenRow | None:
        """The row of a secret, None if there is none. Raises ApiError (RESOURCE_EXHAUSTED).

        An address that has sent many unknown secrets is not refused at once, as others may share it: its look-ups wait
        for each other, and only those that find no token count against it.
        """
        now = self._clock()
        row, read_us = self._known.get(key, (None, 0))
        if 0 <= now - read_us < _TRUSTED_US:
            return row
        if row is None and 0 <= now - self._missed.get(key, -_TRUSTED_US) < _TRUSTED_US:
            return None
        if row is not None:
            return await self._shared_read(key, now, is_slow=False)
        host = host_of(peer)
        is_slow = self._asked[host] >= _UNKNOWN_BURST or not self._unknown.has(host)
        self._asked[host] += 1
        try:
            row = await self._shared_read(key, now, is_slow=is_slow)
        finally:
            self._asked[host] -= 1
            if not self._asked[host]:
                del self._asked[host]
        if row is None:
            self._unknown.take(host)
        return row

    async def _shared_read(self, key: str, now: int, *, is_slow: bool) -> TokenRow | None:
        if key not in self._reading:
            if is_slow and self._waiting >= _SLOW_WAITING:
                message = "too many unknown tokens come from this address; try again later"
                raise ApiError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED", message, retry_seconds=_SLOW_RETRY_SECONDS
                )
            self._waiting += is_slow
            self._reading[key] = asyncio.create_task(self._read(key, now, is_slow=is_slow))
        return await asyncio.shield(self._reading[key])

    async def _read(self, key: str, now: int, *, is_slow: bool) -> TokenRow | None:
        try:
            async with self._slow if is_slow else nullcontext():
                row = await self._db.look_up(tokens.with_secret, key)
        finally:
            self._waiting -= is_slow
            del self._reading[key]
        if row is None:
            self._known.pop(key, None)
            _remember(self._missed, key, now)
        else:
            _remember(self._known, key, (row, now))
        return row

    def _note_use(self, row: TokenRow, now: int) -> None:
        if now - self._noted.get(row.token_id, row.last_use_us or 0) >= _NOTE_EVERY_US:
            self._noted[row.token_id] = now
            task = asyncio.create_task(self._write_use(row.token_id, now))
            self._notes.add(task)
            task.add_done_callback(self._notes.discard)

    async def _write_use(self, token_id: str, now: int) -> None:
        try:
            await self._db.write(tokens.note_use, token_id, now)
        except Exception as error:  # it is only for information: no call fails because of it
            log.warning("the use of token %s was not noted: %s", token_id, type(error).__name__)


def _remember(memory: OrderedDict[str, _T], key: str, value: _T) -> None:
    """Puts a value into a bounded cache. Known and unknown secrets have one each: guesses displace no token."""
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > _REMEMBERED:
        memory.popitem(last=False)


async def ensure_operator(db: Database, home: Path, clock: Clock = system_clock) -> None:
    """Creates an operator's token if there is none, and writes its secret to a file that only its owner may read."""
    if await db.read(tokens.exists, EVERY_PROJECT, Scope.ADMIN.name, clock()):
        return
    name = ids.TokenName(EVERY_PROJECT, ids.new_token_id())
    secret = new_secret(name.token)
    # The file first: a token whose secret is lost would lock everyone out.
    await asyncio.to_thread(_write_private, home / OPERATOR_TOKEN_FILE, secret + "\n")
    await db.write(
        tokens.create,
        name,
        secret_sha256=digest(secret),
        scope=Scope.ADMIN.name,
        display_name="made by the server at its first start",
        creator="server",
        expire_us=None,
    )


async def accept_operator(db: Database, file: Path) -> None:
    """Makes the token in a file, mvp_ID_SECRET, an operator's token. One that the database knows stays as it is, also
    if it is revoked. Raises BadOperatorToken."""
    try:
        secret = await asyncio.to_thread(read_secret, file)
    except ValueError as error:
        raise BadOperatorToken(f"--operator-token-file {error}") from None
    match = _GIVEN.fullmatch(secret)
    if match is None or len(secret) > _SECRET_CHARACTERS:
        raise BadOperatorToken(
            f"--operator-token-file {file} must hold mvp_ID_SECRET, where ID has small letters, digits and hyphens and "
            "SECRET has 32 or more letters, digits, hyphens and underscores; it holds something else"
        )
    name = ids.TokenName(EVERY_PROJECT, match[1])
    try:
        if await db.read(tokens.with_secret, digest(secret)) is None:
            await db.write(
                tokens.create,
                name,
                secret_sha256=digest(secret),
                scope=Scope.ADMIN.name,
                display_name="from the server's --operator-token-file",
                creator="server",
                expire_us=None,
            )
    except IntegrityError:
        if await db.read(tokens.with_secret, digest(secret)) is None:  # else a replica was faster
            raise BadOperatorToken(
                f"--operator-token-file {file} holds the ID {name.token!r}, which another token has; choose another ID"
            ) from None


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _bearer(origin: Origin) -> str:
    header = given_with(origin, "authorization")
    if header is None:
        message = "this server asks for an API token: set MVPRUNE_TOKEN, or name a file with --token-file"
        raise _unauthenticated("NO_TOKEN", message)
    kind, _, secret = header.partition(" ")
    if kind.lower() != "bearer" or not 0 < len(secret) <= (
        _TOKEN_CHARACTERS if secret.count(".") == 2 else _SECRET_CHARACTERS
    ):
        raise _unauthenticated("BAD_TOKEN", "the authorization must be: Bearer TOKEN")
    return secret


def _unauthenticated(reason: str, message: str) -> ApiError:
    return ApiError(grpc.StatusCode.UNAUTHENTICATED, reason, message)
