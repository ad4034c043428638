"""HOST:PORT, as clients and servers read it: a host with a colon, an IPv6 address, stands in brackets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import MutableMapping

LAST_PORT = 65535
_ALL_INTERFACES = ("0.0.0.0", "[::]", "::")  # noqa: S104 (compared, not listened on)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
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


def is_this_machine(host: str) -> bool:
    """Whether a connection to a host stays on this machine: also one to the address of all its interfaces does."""
    return is_loopback(host) or host in _ALL_INTERFACES


def exempt_this_machine(environ: MutableMapping[str, str]) -> None:
    """Adds the loopback to the hosts for which libraries ask no proxy, if `environ` names a proxy. For programs: object
    stores, trackers and mirrors of a hub may be on this machine."""
    names = {name.lower() for name, value in environ.items() if value}
    if not names & {"http_proxy", "https_proxy", "all_proxy", "grpc_proxy"}:
        return
    known = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = [host.strip() for host in known.split(",") if host.strip()]
    if "*" not in hosts:
        environ["no_proxy"] = ",".join([*hosts, *(host for host in _LOOPBACK if host not in hosts)])
