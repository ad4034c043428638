"""A receiver of webhooks: a real HTTP server that keeps what it got and answers as it is told."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

from tests.loopback import QuietHandler, listening


class Got(NamedTuple):
    """A request."""

    path: str
    headers: dict[str, str]  # names in small letters
    body: bytes

    @property
    def event(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Attributes:
    url: of it.
    got: all requests, in their order.
    answer: the status for a request, or a function that sends an answer itself.
    """

    def __init__(self) -> None:
        self.url = ""
        self.got: list[Got] = []
        self.answer: Callable[[Got], int | Callable[[BaseHTTPRequestHandler], None]] = lambda got: 204
        self.most_at_once = 0
        self._now = 0

    def take(self, handler: BaseHTTPRequestHandler) -> None:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            headers = {name.lower(): value for name, value in handler.headers.items()}
            body = handler.rfile.read(int(headers["content-length"]))
            self.got.append(got := Got(handler.path, headers, body))
            answer = self.answer(got)
            if callable(answer):
                answer(handler)
                return
            handler.send_response(answer)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        finally:
            self._now -= 1


@contextmanager
def receiving(context: ssl.SSLContext | None = None, port: int = 0) -> Iterator[Receiver]:
    """A receiver on 127.0.0.1, with TLS if there is a context."""
    receiver = Receiver()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            receiver.take(self)

    with listening(Handler, port, context) as url:
        receiver.url = f"{url}/hook"
        yield receiver
