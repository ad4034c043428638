"""The HTTP server under the API."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import uvicorn

from mvprune.serving import connections
from mvprune.serving.requests import Limits
from mvprune_service.api.access.tls import TlsFiles
from mvprune_service.api.rest.app import RestApp

_GRACE_SECONDS = 5  # for calls that are being answered
_READ_SECONDS = 60.0  # from the first byte of a request to its last: a chunk of an upload has 8 MiB
_RELOAD_SECONDS = 60.0


class _Server(uvicorn.Server):
    """A server in an event loop that is not its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the program."""
        yield


@asynccontextmanager
async def serving(app: RestApp, address: str, tls: TlsFiles | None, max_connections: int) -> AsyncIterator[str]:
    """Serves; gives the address with the port's number.

    Args:
        tls: the certificate and the key, which are read again now and then. None: without TLS.

    Raises:
        OSError: the address cannot be bound.
        BadCertificate: see `TlsFiles`.
    """
    host, _, port = address.rpartition(":")
    listening = _bound(host.strip("[]"), int(port))
    try:
        config = uvicorn.Config(
            app,
            http=connections.protocol(Limits(max_connections=max_connections, read_seconds=_READ_SECONDS)),  # type: ignore[arg-type]
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            lifespan="off",
            ws="none",
            proxy_headers=False,
        )
        config.load()
        reloading = None
        if tls is not None:
            config.ssl = tls.context()
            reloading = asyncio.create_task(_reload(config.ssl, tls))
        server = _Server(config)
        running = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"{host}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running
            if reloading is not None:
                reloading.cancel()
    finally:
        listening.close()


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(1024)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


async def _reload(context: ssl.SSLContext, tls: TlsFiles) -> None:
    """New connections get the certificate that is in the files."""
    while True:
        await asyncio.sleep(_RELOAD_SECONDS)
        await asyncio.to_thread(tls.load_into, context)
