"""Connections of the HTTP server: how many there may be, how long a request may take to arrive, and what is HTTP.

uvicorn by itself waits for the rest of a request for ever. Connections that wait for one are closed after some seconds,
and, where there are too many connections, at once, the oldest first: a request that comes as a whole is always read.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from mvprune.serving.requests import Limits

MAX_HEAD = 16 << 10
"""Bytes of a request's line and headers."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(rb"^content-length[ \t]*:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


def protocol(limits: Limits) -> Callable[..., asyncio.Protocol]:
    """A factory of the protocols of one server's connections."""
    return functools.partial(_Protocol, _Connections(limits))


class _Connections:
    """All connections of a server.

    Attributes:
        limits: of the server.
        open: all of them.
        waiting: those that no request is answered on, the one that has waited longest first.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[_Protocol] = set()
        self.waiting: dict[_Protocol, None] = {}

    def admit(self, connection: _Protocol) -> bool:
        """Makes room for a connection. Gives False where requests are answered on all of them."""
        if len(self.open) >= self.limits.max_connections:
            if not self.waiting:
                return False
            next(iter(self.waiting)).drop()
        self.open.add(connection)
        return True


class _Protocol(H11Protocol):
    """A connection that is closed when it does not send a whole request, or does not read an answer, in time."""

    def __init__(self, connections: _Connections, **given: Any) -> None:
        super().__init__(**given)
        self.conn = self._strict = _StrictConnection(h11.SERVER, MAX_HEAD)
        self._all = connections
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the first request."""
        super().connection_made(transport)
        if not self._all.admit(self):
            self._refuse(503, "too many requests are in progress; try again")
            return
        self._all.waiting[self] = None
        self._start_timer(self._expire)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._stop_timer()
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Waits for the rest of a request from its first byte on."""
        if self.transport.is_closing():
            return
        if self._timer is None and self in self._all.waiting:
            self._start_timer(self._expire)
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            data = data.lstrip(b"\r\n")  # empty lines before a request are no part of it (RFC 9112, 2.2)
        if data:
            super().data_received(data)

    def handle_events(self) -> None:
        """Notes whether a whole request is there."""
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timer()
            self._all.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        """Waits for another request; uvicorn's own timer is on until it begins."""
        if self in self._all.open:
            self._all.waiting[self] = None
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._start_timer(self.drop)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_timer()

    def drop(self) -> None:
        """Closes the connection at once."""
        self._forget()
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answers what is not HTTP as all refusals are answered."""
        self._refuse(400, self._strict.refusal or "the request must be valid HTTP/1.1")

    def _expire(self) -> None:
        seconds = self._all.limits.read_seconds
        self._refuse(408, f"the request must arrive within {seconds:g} seconds")

    def _refuse(self, status: int, message: str) -> None:
        """Answers, unless an answer has begun, and closes the connection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": {"field": "", "message": message}}).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            answer = h11.Response(status_code=status, headers=headers, reason=STATUS_PHRASES[status])
            for event in (answer, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self._stop_timer()
        self._forget()
        self.transport.close()

    def _forget(self) -> None:
        self._all.open.discard(self)
        self._all.waiting.pop(self, None)

    def _start_timer(self, expired: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self._all.limits.read_seconds, expired)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _StrictConnection(h11.Connection):
    """Refuses requests whose length two servers may read differently (RFC 9112, 6.3), which h11 would accept.

    Attributes:
        refusal: why the last request was refused; "" where h11 did.
    """

    refusal = ""

    def next_event(self) -> Any:
        """The next part of a request.

        Raises:
            RemoteProtocolError: it is not valid.
        """
        if self.their_state is h11.IDLE:
            data, _ = self.trailing_data
            end = _END_OF_HEAD.search(data)
            if (end.start() if end else len(data)) > MAX_HEAD:  # h11 looks at what is incomplete only
                self._refuse(f"line and headers of the request must have at most {MAX_HEAD:,} bytes, got more")
            if end:
                self._check_lengths(data[: end.start() + 1])
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                self._refuse("the request must have Content-Length or Transfer-Encoding, got both")
        return event

    def _check_lengths(self, head: bytes) -> None:
        """h11 makes one header of several that are equal."""
        lengths = _LENGTH.findall(head)
        if len(lengths) > 1 or any(b"," in length for length in lengths):
            self._refuse("the request must have one Content-Length, got more than one")

    def _refuse(self, why: str) -> None:
        self.refusal = why
        raise h11.RemoteProtocolError(why)
