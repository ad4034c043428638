"""The names by which the server may be called.

A web page may give a name of its own this server's address (DNS rebinding): the browser then lets it read the answers.
Such a request has that name as its Host. Addresses cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::[0-9]*)?")


class HostCheck:
    """Refuses requests for other names, with status 421.

    Args:
        app: answers the others.
        names: that are allowed, besides addresses and localhost.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""
        host = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if host and not self._is_allowed(host):
            message = f"Host must be an address, localhost or a name that --host-name allows, got {host[:80]!r}"
            await JSONResponse({"error": {"field": "", "message": message}}, 421)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_allowed(self, host: str) -> bool:
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = found["six"] or found["name"] or ""
        return name.lower().removesuffix(".") in self._names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
