"""How many connections an address may have.

gRPC only limits the connections of a port in all, and does not report new ones. Here the sockets of this process are
looked through instead.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import stat
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from mvprune_service.api.peers import network_of

log = logging.getLogger(__name__)

_FOLDER = "/dev/fd"  # on Linux a link into /proc

_Socket = tuple[int, int]  # descriptor and inode


class _Connection(NamedTuple):
    """A connection of a client. `number` grows with each connection that is found."""

    number: int
    port: int
    network: str


class ConnectionLimit:
    """Closes the newest connections of an address that has more than `limit` open to one port. Of IPv6 addresses, a
    /64 network counts as one.

    Args:
        ports: the ports of this server.
        limit: connections of each address to each port.
    """

    def __init__(self, ports: Collection[int], limit: int) -> None:
        self._ports = frozenset(ports)
        self._limit = limit
        self._known: dict[_Socket, _Connection | None] = {}  # None: a socket that is no connection of a client
        self._numbers = itertools.count()
        self._warned: set[str] = set()

    async def step(self) -> None:
        """Looks at all connections once."""
        full, exceeding = await asyncio.to_thread(self._close_newest)
        for network in exceeding - self._warned:
            text = "%s has more than %d connections to a port: the newest are closed (--max-connections-per-address)"
            log.warning(text, network, self._limit)
        # gRPC accepts a flood in parts, between which the address has just as many as it may have.
        self._warned = exceeding | (self._warned & full)

    def _close_newest(self) -> tuple[set[str], set[str]]:
        """Returns the addresses with as many connections as they may have or more, and those with more."""
        self._known = {found: self._identify(found) for found in _sockets()}
        groups: dict[tuple[int, str], list[tuple[int, _Socket]]] = defaultdict(list)
        for found, connection in self._known.items():
            if connection is not None:
                groups[connection.port, connection.network].append((connection.number, found))
        for members in groups.values():
            for _, found in sorted(members)[self._limit :]:
                _shut_down(found)
        full = {network for (_, network), members in groups.items() if len(members) >= self._limit}
        return full, {network for (_, network), members in groups.items() if len(members) > self._limit}

    def _identify(self, found: _Socket) -> _Connection | None:
        if found in self._known:
            return self._known[found]
        with suppress(OSError), _opened(found) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                port = connection.getsockname()[1]
                if port in self._ports:
                    return _Connection(next(self._numbers), port, network_of(connection.getpeername()[0]))
        return None


def _sockets() -> list[_Socket]:
    found = []
    for name in os.listdir(_FOLDER):  # noqa: PTH208 (with thousands of connections Path takes several times as long)
        with suppress(OSError):  # closed meanwhile
            status = os.fstat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                found.append((int(name), status.st_ino))
    return found


def _opened(found: _Socket) -> socket.socket:
    """The same socket under a descriptor of its own. Raises OSError if gRPC has closed it meanwhile: its descriptor may
    have been reused."""
    descriptor, inode = found
    copy = os.dup(descriptor)
    try:
        if os.fstat(copy).st_ino != inode:
            raise OSError("the descriptor was reused")
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _shut_down(found: _Socket) -> None:
    """Ends a connection for both sides; gRPC then closes its descriptor."""
    with suppress(OSError), _opened(found) as connection:
        connection.shutdown(socket.SHUT_RDWR)
