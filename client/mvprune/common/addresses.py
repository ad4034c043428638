"""HOST:PORT, as clients and servers read it: a host with a colon, an IPv6 address, stands in brackets."""

from __future__ import annotations

import ipaddress
import re

LAST_PORT = 65535
_HOST_PORT = re.compile(r"(\[[\w:.%]+\]|[^\s:/\[\]]+):([0-9]{1,5})")


def split_address(address: str) -> tuple[str, int]:
    """Host (in its brackets, if it has any) and port of `address`. Raises ValueError for anything else than
    HOST:PORT."""
    found = _HOST_PORT.fullmatch(address)
    if found is None or int(found[2]) > LAST_PORT:
        raise ValueError(f"{address!r} is not HOST:PORT")
    return found[1], int(found[2])


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
