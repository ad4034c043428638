"""The server over HTTP (streamable HTTP): on this machine, with the token of each caller."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request

from mvprune.client import endpoint
from mvprune.client.async_client import AsyncClient
from mvprune.common.exceptions import bad_field
from mvprune.mcp.server import Clients

PATH = "/mcp"
_BEARER = "bearer"
_CALL_SECONDS = 30.0
_NAMES = ("127.0.0.1", "localhost", "[::1]")


def clients_of_callers(connection: Mapping[str, Any]) -> Clients:
    """A client for each call, with the bearer token of its request: never with one of this process.

    Args:
        connection: arguments of `AsyncClient` beside the token.
    """

    @contextlib.asynccontextmanager
    async def client_for(request: Request) -> AsyncIterator[AsyncClient]:
        scheme, _, token = request.headers.get("authorization", "").strip().partition(" ")
        if scheme and (scheme.lower() != _BEARER or not token.strip()):
            raise bad_field("Authorization", f"must be Bearer and an API token, got {scheme!r:.20}")
        async with _CallersClient(token.strip(), **connection) as client:
            yield client

    return client_for


class _CallersClient(AsyncClient):
    """A client with a caller's token, "" for none, and with no other."""

    def __init__(self, token: str, *, project: str | None, **server: Any) -> None:
        self._connect(endpoint.find(token=token, own_tokens=False, **server), project, _CALL_SECONDS)


def application(server: Server[dict[str, Any]], port: int, hosts: Sequence[str]) -> Starlette:
    """The application. It answers requests with the Host, and where there is one the Origin, of this machine.

    Args:
        port: where it listens.
        hosts: other names that it answers to, such as that of a proxy on this machine.
    """
    names = [f"{name}:{port}" for name in _NAMES]
    security = TransportSecuritySettings(
        allowed_hosts=[*names, *hosts],
        allowed_origins=[f"http://{name}" for name in names] + [f"https://{name}" for name in hosts],
    )
    # Without sessions: a request has its caller's token, and no session outlives it that another could go on with.
    return server.streamable_http_app(streamable_http_path=PATH, stateless_http=True, transport_security=security)


def run(app: Starlette, listening: socket.socket) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    uvicorn.Server(config).run(sockets=[listening])
