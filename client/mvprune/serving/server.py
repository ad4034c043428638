"""The server under the application: uvicorn on a socket of ours, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import socket

import uvicorn
from starlette.types import ASGIApp

_GRACE_SECONDS = 30


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes any that is free.

    Raises:
        OSError: the address is taken, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=512)
    # Accepted connections inherit it; asyncio would set it only on sockets of its own. An answer is sent in two parts,
    # and the second would wait 40 ms for the client to acknowledge the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def http_server(application: ASGIApp) -> uvicorn.Server:
    """A server that ends when its `should_exit` is set, after it has answered what has come in."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        lifespan="on",
        loop="asyncio",
        http="h11",
        ws="none",
    )
    return uvicorn.Server(config)


def run(application: ASGIApp, listening: socket.socket) -> None:
    """Serves until SIGTERM, then answers what has come in and returns.

    Raises:
        KeyboardInterrupt: Ctrl-C, likewise after what has come in.
    """
    # uvicorn raises the signal that ended it once more, for whoever had handled it before: it has been heeded.
    signal.signal(signal.SIGTERM, lambda *_: None)
    http_server(application).run(sockets=[listening])
