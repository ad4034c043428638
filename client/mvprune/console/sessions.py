"""Who is logged in. The browser has the name of a session, which says nothing; the rest is in the memory of the
console, and in a `Store` if it is to outlive the process."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from mvprune.client.admin import Caller
from mvprune.console.issuer import IssuerTokens
from mvprune.console.link import Link
from mvprune.console.settings import Settings
from mvprune.console.store import Store

ALL = "-"
"""The project of a token that is valid for all."""
MAX_SESSIONS = 1000  # the one that was idle longest makes room
IDLE_SECONDS = 12 * 3600.0
LONGEST_SECONDS = 7 * 86_400.0


@dataclass
class Session:
    """A user who is logged in.

    Attributes:
        link: the user's way to the server.
        project: that is shown first.
        form_token: in each form of this session, so that no other site can send one.
        caller: what the server says of the token. What a user may do is the server's decision; pages show no buttons
            that it would refuse.
        born, used: times of the clock.
    """

    link: Link
    project: str
    caller: Caller
    born: float
    used: float
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def may_submit(self) -> bool:
        """Whether it is worth showing what changes something."""
        return self.caller.scope != "read"

    @property
    def is_admin(self) -> bool:
        """Whether it is worth showing tokens."""
        return self.caller.scope == "admin"

    @property
    def is_operator(self) -> bool:
        """Whether it is worth showing what is of the whole server."""
        return self.is_admin and self.caller.project == ALL

    @property
    def home(self) -> str:
        """The address of the one job or sweep that the token shows; "": it shows a project."""
        return f"/{self.caller.resource}" if self.caller.resource else ""

    def has_form_token(self, given: str) -> bool:
        """Whether a form is of this session."""
        return hmac.compare_digest(given.encode(), self.form_token.encode())


class Sessions:
    """All sessions of a console.

    Args:
        store: keeps them for another process; None: they end with this one.
        clock: seconds since 1970.
    """

    def __init__(self, settings: Settings, store: Store | None = None, clock: Callable[[], float] = time.time) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._all: dict[str, Session] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def begin(self, link: Link, project: str, caller: Caller) -> str:
        """Begins a session; returns its name, which is always a new one."""
        now = self._clock()
        for name in [name for name, one in self._all.items() if self._is_over(one, now)]:
            self.end(name)
        while len(self._all) >= MAX_SESSIONS:
            self.end(min(self._all, key=lambda name: self._all[name].used))
        name = secrets.token_urlsafe(32)
        session = Session(link, project, caller, now, now)
        if self._store:
            self._store.tidy(IDLE_SECONDS, MAX_SESSIONS - 1)
            self._store.save(name, _kept(session), is_new=True)
        self._add(name, session)
        return name

    def get(self, name: str) -> Session | None:
        """The session of this name, None where there is none or it is over."""
        found, now = self._all.get(name) or self._restored(name), self._clock()
        if found is None:
            return None
        if self._is_over(found, now) or (self._store and not self._store.touch(name)):
            self.end(name)
            return None
        found.used = now
        return found

    def end(self, name: str) -> None:
        """Ends a session: its name is worth nothing any more, and its streams end."""
        if self._store:
            self._store.remove(name)
        self._forget(name)

    async def close(self) -> None:
        """Closes the connections of all. Those in the store go on in another process."""
        for name in list(self._all):
            self._forget(name)
        await asyncio.gather(*self._closing)

    def _add(self, name: str, session: Session) -> None:
        self._all[name] = session
        source = session.link.transport.endpoint.source
        if self._store and isinstance(source, IssuerTokens):
            store = self._store
            source.renewed = lambda: store.save(name, _kept(session))

    def _restored(self, name: str) -> Session | None:
        """A session that another process has begun."""
        kept = self._store.load(name) if self._store and name else None
        used = self._store.used(name) if self._store and kept else None
        if kept is None or used is None:
            return None
        endpoint = self._settings.endpoint
        if (tokens := kept["tokens"]) is None:
            endpoint = endpoint.with_token(kept["token"])
        elif self._settings.provider:
            endpoint = endpoint.with_source(IssuerTokens.of(self._settings.provider, tokens))
        caller = kept["caller"]
        end = caller.pop("expire_time")
        known = Caller(**caller, expire_time=datetime.fromisoformat(end) if end else None)
        session = Session(Link(endpoint), kept["project"], known, kept["born"], used, kept["form_token"])
        self._add(name, session)
        return session

    def _forget(self, name: str) -> None:
        found = self._all.pop(name, None)
        if found is not None:
            closing = asyncio.get_running_loop().create_task(found.link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used > IDLE_SECONDS or now - session.born > LONGEST_SECONDS


def _kept(session: Session) -> dict[str, Any]:
    """What another process needs to go on with a session."""
    endpoint, end = session.link.transport.endpoint, session.caller.expire_time
    source = endpoint.source
    return {
        "tokens": source.kept() if isinstance(source, IssuerTokens) else None,
        "token": endpoint.token,
        "project": session.project,
        "caller": {**asdict(session.caller), "expire_time": end.isoformat() if end else None},
        "born": session.born,
        "form_token": session.form_token,
    }
