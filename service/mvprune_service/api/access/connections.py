"""How many connections an address may have, and how many all may that nobody knows.

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
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from mvprune_service.api.access.peers import KnownAddresses, network_of
from mvprune_service.observability import metrics
from mvprune_service.observability.probes import Problems

log = logging.getLogger(__name__)

_FOLDER = "/dev/fd"  # on Linux a link into /proc
_SHOWN = 4  # addresses
_WARN_SECONDS = 60.0
_HURRY_SECONDS = 0.05  # between two looks while there is a crowd
_HURRIES = 20  # looks of a step at most

_Socket = tuple[int, int]  # descriptor and inode


class TooManyConnections(Exception):
    """A port is full, or would be if connections were not closed."""


class Limits(NamedTuple):
    """The limits of a port.

    Attributes:
        of_address: connections of each address.
        of_strangers: connections of all addresses from which no valid credential came lately.
        in_all: connections that gRPC accepts.
    """

    of_address: int
    of_strangers: int
    in_all: int


class _Connection(NamedTuple):
    """A connection of a client. `number` grows with each connection that is found."""

    number: int
    port: int
    network: str


class ConnectionLimit:
    """Closes the newest connections of an address that has more than it may have. If strangers have too many in all,
    it closes those of the addresses with the most: so one more address, and one that is known, finds a place. Of IPv6
    addresses, a /64 network counts as one.

    Args:
        ports: the ports of this server, and what they are called.
        limits: of each port.
        known: addresses of callers with valid credentials.
        problems: has crowded ports while they are.
    """

    def __init__(
        self,
        ports: Mapping[int, str],
        limits: Limits,
        known: KnownAddresses | None = None,
        problems: Problems | None = None,
    ) -> None:
        self._ports = ports
        self._limits = limits
        self._known_addresses = known or KnownAddresses()
        self._problems = problems or Problems()
        self._known: dict[_Socket, _Connection | None] = {}  # None: a socket that is no connection of a client
        self._numbers = itertools.count()
        self._warned: set[str] = set()
        self._said: dict[int, float] = {}  # by port: when it was last said that it is crowded

    async def step(self) -> None:
        """Looks at all connections once; while a port is crowded, many times in a second."""
        for _ in range(_HURRIES):
            full, exceeding, crowded = await asyncio.to_thread(self._close_newest)
            for network in exceeding - self._warned:
                text = (
                    "%s has more than %d connections to a port: the newest are closed (--max-connections-per-address)"
                )
                log.warning(text, network, self._limits.of_address)
            # gRPC accepts a flood in parts, between which the address has just as many as it may have.
            self._warned = exceeding | (self._warned & full)
            self._report(crowded)
            if not crowded:
                return
            await asyncio.sleep(_HURRY_SECONDS)

    def _report(self, crowded: Mapping[int, str]) -> None:
        for port, name in self._ports.items():
            if port not in crowded:
                self._problems.clear(_part(name))
                continue
            self._problems.report(_part(name), TooManyConnections(crowded[port]))
            now = time.monotonic()
            if now - self._said.get(port, -_WARN_SECONDS) >= _WARN_SECONDS:
                self._said[port] = now
                log.warning("port of %s: %s", name, crowded[port])

    def _close_newest(self) -> tuple[set[str], set[str], dict[int, str]]:
        """Returns the addresses with as many connections as they may have or more, those with more, and by port what
        is said of a crowd."""
        self._known = {found: self._identify(found) for found in _sockets()}
        groups: dict[int, dict[str, list[tuple[int, _Socket]]]] = {port: defaultdict(list) for port in self._ports}
        for found, connection in self._known.items():
            if connection is not None:
                groups[connection.port][connection.network].append((connection.number, found))
        full, exceeding, crowded = set[str](), set[str](), dict[int, str]()
        for port, by_network in groups.items():
            total = sum(map(len, by_network.values()))
            metrics.connections.labels(self._ports[port]).set(total)
            metrics.connections_of_address.labels(self._ports[port]).set(max(map(len, by_network.values()), default=0))
            strangers = {one: members for one, members in by_network.items() if not self._known_addresses.has(one)}
            count = sum(len(members) for members in strangers.values())
            is_crowd = count > self._limits.of_strangers
            share = _share(map(len, strangers.values()), self._limits.of_strangers) if is_crowd else count
            for network, members in by_network.items():
                most = min(self._limits.of_address, share) if network in strangers else self._limits.of_address
                closed = sorted(members)[most:]
                for _, found in closed:
                    _shut_down(found)
                metrics.connections_closed.labels(self._ports[port]).inc(len(closed))
                if len(members) >= self._limits.of_address:
                    full.add(network)
                if len(members) > self._limits.of_address:
                    exceeding.add(network)
            if is_crowd or total >= self._limits.in_all:
                crowded[port] = self._crowd(by_network, total)
        return full, exceeding, crowded

    def _crowd(self, by_network: Mapping[str, list[tuple[int, _Socket]]], total: int) -> str:
        most = sorted(by_network, key=lambda network: (-len(by_network[network]), network))[:_SHOWN]
        whose = ", ".join(f"{network} ({len(by_network[network]):,})" for network in most)
        remedy = "block addresses, or raise --max-connections"
        return f"{total:,} of {self._limits.in_all:,} connections are in use: {remedy}; most are those of {whose}"

    def _identify(self, found: _Socket) -> _Connection | None:
        if found in self._known:
            return self._known[found]
        with suppress(OSError), _opened(found) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                port = connection.getsockname()[1]
                if port in self._ports:
                    return _Connection(next(self._numbers), port, network_of(connection.getpeername()[0]))
        return None


def _part(name: str) -> str:
    return f"connections of {name}"


def _share(counts: Iterable[int], places: int) -> int:
    """The largest number such that all have places if none has more than that, and at least 1."""
    ordered = sorted(counts)
    for index, count in enumerate(ordered):
        waiting = len(ordered) - index
        if count * waiting > places:
            return max(1, places // waiting)
        places -= count
    return ordered[-1] if ordered else 1


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
