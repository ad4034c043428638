"""HTTP POST to addresses that users name, and to no address that they must not reach from here.

The host is resolved once, all its addresses are checked, and the connection goes to one of those that were checked: a
DNS server that changes its answer meanwhile changes nothing. TLS verifies the name of the host. Redirects are not
followed, and no proxy is used.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeAlias
from urllib.parse import SplitResult, urlsplit

from mvprune_service.domain.webhooks import Answer

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
Connected: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_SECONDS = 10.0  # of an attempt
_CONNECT_SECONDS = 4.0  # of each address of a host
_RESOLVE_SECONDS = 3.0
_HEAD_BYTES, _BODY_BYTES = 16 << 10, 16 << 10  # of an answer that are read
_INTERIM = 5  # answers of 1xx before the answer
_ADDRESSES = 4  # of a host that are tried
_MOST_CHARACTERS = 1000
_URL = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: |\r\n)")
_NAT64 = ip_network("64:ff9b::/96")  # leads to IPv4
# Of IANA's registries of special addresses, whatever this version of Python knows of them; the last is Azure's, where
# its machines find credentials.
_SPECIAL = tuple(
    map(
        ip_network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24"),
            *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
            "168.63.129.16/32",
        ),
    )
)
_GLOBAL_6 = ip_network("2000::/3")


class BadUrl(Exception):
    """The URL cannot be posted to; the text says what it must be."""


class Forbidden(Exception):
    """The host has an address that must not be reached; the text says so."""


class Target(NamedTuple):
    """Where a URL leads."""

    host: str
    port: int
    is_tls: bool
    path: str


def parse_url(url: str) -> Target:
    """Raises BadUrl."""
    rule = "an https URL of a host, without user, password and fragment, of at most 1,000 ASCII characters"
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        raise BadUrl(rule) from None
    is_url = _URL.fullmatch(url) and parts.scheme in ("https", "http") and len(url) <= _MOST_CHARACTERS
    if not is_url or not parts.hostname or "@" in parts.netloc or "#" in url or port == 0:
        raise BadUrl(rule)
    is_tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.hostname, port or (443 if is_tls else 80), is_tls, path)


def is_public(address: Address) -> bool:
    """Whether an address is of the internet, and not of this machine, its network or its cloud."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or (IPv4Address(address.packed[-4:]) if address in _NAT64 else None)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_6:
            return False
    return not any(address in network for network in _SPECIAL)


class Outbound:
    """Posts to hosts.

    Args:
        allowed: addresses that may be reached although they are not public, also without TLS.
        resolve: host and port to addresses. Raises OSError.
    """

    def __init__(self, allowed: Sequence[Network] = (), resolve: Resolve | None = None) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve or _resolve

    async def check(self, url: str) -> None:
        """Raises BadUrl, and Forbidden if it is known that the host must not be reached. A host that does not resolve
        now may do so later."""
        target = parse_url(url)
        if not target.is_tls and not self._allowed:
            raise BadUrl("https://…: no address of http:// is allowed by the server's setting webhook_allow")
        with suppress(OSError, TimeoutError):
            await self._addresses(target)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Posts, and waits for the status of the answer, 10 s in all. Nothing of its body is kept."""
        try:
            target = parse_url(url)
            async with asyncio.timeout(_SECONDS):
                status = await self._exchange(target, headers, body)
        except (BadUrl, Forbidden) as error:
            return Answer(None, str(error))
        except TimeoutError:
            return Answer(None, f"no answer within {_SECONDS:g} s")
        except ssl.SSLCertVerificationError as error:
            return Answer(None, f"the certificate is not valid: {error.verify_message}")
        except ssl.SSLError as error:
            return Answer(None, f"TLS failed: {error.reason or 'the connection was cut'}")
        except socket.gaierror:
            return Answer(None, "the host cannot be resolved")
        except (OSError, EOFError, asyncio.LimitOverrunError, _NotHttp) as error:
            return Answer(None, _words(error))
        if 200 <= status < 300:
            return Answer(status)
        return Answer(status, f"HTTP {status}{': redirects are not followed' if 300 <= status < 400 else ''}")

    async def _exchange(self, target: Target, headers: Mapping[str, str], body: bytes) -> int:
        reader, writer = await self._connect(target)
        try:
            host = f"[{target.host}]" if ":" in target.host else target.host
            default = 443 if target.is_tls else 80
            lines = {"Host": host if target.port == default else f"{host}:{target.port}", **headers}
            lines |= {"Content-Length": str(len(body)), "Connection": "close"}
            head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body)
            await writer.drain()
            status = await _status(reader)
            with suppress(OSError, EOFError, TimeoutError):  # a receiver that still sends would see a broken connection
                async with asyncio.timeout(1.0):
                    await reader.readexactly(_BODY_BYTES)
            return status
        except asyncio.IncompleteReadError as error:
            raise _NotHttp from error
        finally:
            writer.transport.abort()

    async def _connect(self, target: Target) -> Connected:
        """A connection to one of the addresses that were checked. Raises OSError, Forbidden."""
        failure: OSError = OSError("the host has no address")
        context = await asyncio.to_thread(_context) if target.is_tls else None
        for address in (await self._addresses(target))[:_ADDRESSES]:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(
                        address,
                        target.port,
                        limit=_HEAD_BYTES,
                        ssl=context,
                        server_hostname=target.host if target.is_tls else None,
                    )
            except TimeoutError:
                failure = OSError("the connection was not accepted in time")
            except OSError as error:
                failure = error
        raise failure

    async def _addresses(self, target: Target) -> Sequence[str]:
        """All addresses of a host. Raises OSError, TimeoutError, and Forbidden if any must not be reached."""
        async with asyncio.timeout(_RESOLVE_SECONDS):
            found = await self._resolve(target.host, target.port)
        for one in found:
            address = ip_address(one.partition("%")[0])
            mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
            is_allowed = any((mapped or address) in network for network in self._allowed)
            if not is_allowed and not (target.is_tls and is_public(address)):
                raise Forbidden(
                    f"{target.host} has an address that must not be reached: the server's setting webhook_allow lists "
                    "those that may be, beside public ones with https"
                )
        return found


class _NotHttp(Exception):
    """The answer is none of HTTP."""


async def _status(reader: asyncio.StreamReader) -> int:
    for _ in range(_INTERIM):
        head = await reader.readuntil(b"\r\n\r\n")
        found = _STATUS.match(head)
        if found is None:
            raise _NotHttp
        if int(found[1]) >= 200:
            return int(found[1])
    raise _NotHttp


async def _resolve(host: str, port: int) -> Sequence[str]:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a name that DNS cannot have
        raise socket.gaierror from None
    return [str(address[0]) for *_, address in found]


@functools.cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _words(error: Exception) -> str:
    if isinstance(error, asyncio.LimitOverrunError):
        return f"the headers of the answer have more than {_HEAD_BYTES >> 10} KiB"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, ConnectionError):
        return "the connection was cut"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return "the answer is not HTTP"
