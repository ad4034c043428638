"""Addresses of callers."""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote

_IPV6_PREFIX = 64  # the network of one customer of a provider, who can use any address in it


def host_of(peer: str) -> str:
    """The address in gRPC's name of a peer, without the port, as `network_of` has it."""
    kind, _, place = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return peer
    return network_of(unquote(place).rpartition(":")[0].strip("[]"))


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
