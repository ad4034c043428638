"""Addresses of callers."""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote

_IPV6_PREFIX = 64  # what one customer of a provider has: each address in it costs nothing


def host_of(peer: str) -> str:
    """The address in gRPC's name of a peer, without the port; an IPv6 address is represented by its network."""
    kind, _, place = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return peer
    host = unquote(place).rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), _IPV6_PREFIX), strict=False))
    return host
