"""HTTP servers of tests: on a free port of loopback, on a thread of their own."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def listening(
    handler: type[BaseHTTPRequestHandler], port: int = 0, context: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A server; gives its URL.

    Args:
        port: 0: a free one.
        context: for TLS.
    """
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=lambda: server.serve_forever(0.02), daemon=True)
    thread.start()
    try:
        yield f"{'https' if context else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
