"""The HTTP server under the console."""

from __future__ import annotations

import signal
import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette

_GRACE_SECONDS = 10  # for requests that are being answered
_MAX_CONNECTIONS = 2000


class _Server(uvicorn.Server):
    """Ends the streams of events when it is to end: by itself it would wait for them."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begins to end."""
        self.config.app.state.drain()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def http_server(application: Starlette) -> uvicorn.Server:
    """A server that ends at SIGTERM and Ctrl-C, or when its `should_exit` is set."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        limit_concurrency=_MAX_CONNECTIONS,
        lifespan="on",
        loop="asyncio",
        ws="none",
        proxy_headers=False,
    )
    return _Server(config)


def run(application: Starlette, listening: socket.socket) -> None:
    """Serves until SIGTERM. Raises KeyboardInterrupt at Ctrl-C."""
    # uvicorn raises the signal that ended it once more, for whoever had handled it before: it has been heeded.
    signal.signal(signal.SIGTERM, lambda *_: None)
    http_server(application).run(sockets=[listening])
