"""Where calls come from."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Any, Protocol
from urllib.parse import unquote

from mvprune_service.clock import SECOND, Clock, system_clock

_IPV6_PREFIX = 64  # the network of one customer of a provider, who can use any address in it
_KNOWN_US = 15 * 60 * SECOND  # since its last call with a valid credential, an address is known
_REMEMBERED = 10_000  # addresses


class Origin(Protocol):
    """Where a call comes from, and what it brings beside its request. gRPC's context of a call is one."""

    def peer(self) -> str:
        """The caller's address, as gRPC writes it: ipv4:10.0.0.1:5000."""

    def invocation_metadata(self) -> Any:
        """Names and values, the names in small letters; None: there are none."""


def given_with(origin: Origin, name: str) -> str | None:
    """The first value of this name in the metadata of a call, None if there is none."""
    metadata = origin.invocation_metadata() or ()
    return next((str(value) for key, value in metadata if key == name), None)


class KnownAddresses:
    """Addresses from which calls with valid credentials came lately."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._seen: OrderedDict[str, int] = OrderedDict()

    def note(self, peer: str) -> None:
        """A call of this peer, by gRPC's name, had a valid credential."""
        host = host_of(peer)
        self._seen[host] = self._clock()
        self._seen.move_to_end(host)
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def has(self, network: str) -> bool:
        """Whether an address, as `network_of` has it, is known."""
        return network in self._seen and self._clock() - self._seen[network] < _KNOWN_US


def address_of(peer: str) -> str:
    """The address in gRPC's name of a peer, without the port; the name itself where it has none."""
    kind, _, place = peer.partition(":")
    return unquote(place).rpartition(":")[0].strip("[]") if kind in {"ipv4", "ipv6"} else peer


def host_of(peer: str) -> str:
    """The address in gRPC's name of a peer, without the port, as `network_of` has it."""
    return network_of(address_of(peer))


def network_of(host: str) -> str:
    """An IPv4 address itself; the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
    return host
