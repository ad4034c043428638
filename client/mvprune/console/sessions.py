"""Who is logged in. A session is only in the memory of the console: the browser has its name, which says nothing."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mvprune.client.admin import Caller
from mvprune.console.link import Link

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
        clock: seconds, of a clock that is never set.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
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
        self._all[name] = Session(link, project, caller, now, now)
        return name

    def get(self, name: str) -> Session | None:
        """The session of this name, None where there is none or it is over."""
        found, now = self._all.get(name), self._clock()
        if found is None:
            return None
        if self._is_over(found, now):
            self.end(name)
            return None
        found.used = now
        return found

    def end(self, name: str) -> None:
        """Ends a session: its name is worth nothing any more, and its streams end."""
        found = self._all.pop(name, None)
        if found is not None:
            closing = asyncio.get_running_loop().create_task(found.link.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Ends all."""
        for name in list(self._all):
            self.end(name)
        await asyncio.gather(*self._closing)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used > IDLE_SECONDS or now - session.born > LONGEST_SECONDS
