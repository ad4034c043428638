"""The server under the application: uvicorn on a given socket, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from typing import Any

import uvicorn
from starlette.applications import Starlette

from mvprune.serving.connections import protocol
from mvprune.serving.requests import Limits

_GRACE_SECONDS = 30
_LAST_SECONDS = 5  # of these, for what is still being written
_BACKLOG = 128  # accepted at once, before any is counted
_OTHER_FILES = 256  # descriptors that are not connections


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


class ModelStopped(Exception):
    """The thread that runs the model ended, so that nothing could be answered any more."""


class _Server(uvicorn.Server):
    """Ends, as on SIGTERM, where the application's model has stopped."""

    def __init__(self, config: uvicorn.Config, application: Starlette) -> None:
        super().__init__(config)
        self._application = application

    async def on_tick(self, counter: int) -> bool:
        """Whether it is time to end."""
        return await super().on_tick(counter) or bool(self._application.state.failed)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what has come in. Texts that take longer end before the time is over, and are sent as they are."""
        loop = asyncio.get_running_loop()
        ending = loop.call_later(_GRACE_SECONDS - _LAST_SECONDS, self._application.state.end)
        await super().shutdown(sockets)
        ending.cancel()


def reserve_descriptors(limits: Limits) -> None:
    """Raises this process's limit of open files where the connections need it.

    Raises:
        ValueError: the system does not allow as many.
    """
    needed = limits.max_connections + _BACKLOG + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            most = hard - _BACKLOG - _OTHER_FILES
            raise ValueError(
                f"--max-connections must be at most {most}, got {limits.max_connections}: this process may open {hard} "
                "files (ulimit -n)"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def http_server(application: Starlette, limits: Limits = Limits()) -> uvicorn.Server:  # noqa: B008 (immutable)
    """A server that ends when its `should_exit` is set, after it has answered what has come in."""
    made: Any = protocol(limits)  # called as the class that uvicorn expects would be
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        lifespan="on",
        loop="asyncio",
        http=made,
        backlog=_BACKLOG,
        ws="none",
    )
    return _Server(config, application)


def run(application: Starlette, listening: socket.socket, limits: Limits) -> None:
    """Serves until SIGTERM, then answers what has come in and returns.

    Raises:
        KeyboardInterrupt: Ctrl-C, also after what has come in.
        ModelStopped: the model can answer nothing any more.
    """
    # uvicorn raises the signal that ended it once more, for whoever had handled it before: it has been heeded.
    signal.signal(signal.SIGTERM, lambda *_: None)
    http_server(application, limits).run(sockets=[listening])
    if application.state.failed:
        raise ModelStopped
