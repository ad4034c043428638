"""Bytes over HTTP: one ranged read, and PUTs over a connection that is kept."""

from __future__ import annotations

import base64
import contextlib
import http.client
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener, getproxies, proxy_bypass

from mvprune.common.addresses import is_this_machine
from mvprune.common.exceptions import DownloadError, UploadError

_NONE: Mapping[str, str] = MappingProxyType({})
_BLOCK = 1 << 18
_MOST_OF_AN_ANSWER = 500  # bytes that are shown of what a store says


def read_url(url: str, start: int, end: int | None, timeout: float) -> Iterator[bytes]:
    """The bytes of a URL from `start` on, until they end or the connection does: the caller knows how many to expect.

    Args:
        end: the byte to stop before, if the server honours ranges; None: as many as there are.
        timeout: seconds without a byte.

    Raises:
        DownloadError: the URL is not http or https.
        OSError, http.client.HTTPException: the server cannot be reached or refuses.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise DownloadError(f"the scheme of a download URL must be http or https, got {parts.scheme!r}")
    opener = build_opener(*[ProxyHandler({})] if is_this_machine(parts.hostname or "") else [])
    wanted = f"bytes={start}-{'' if end is None else end - 1}"
    request = Request(url, headers={"Range": wanted} if start or end else {})  # noqa: S310
    with opener.open(request, timeout=timeout) as response:
        at = _start(response.headers.get("Content-Range", "")) if response.status == 206 else 0
        if at > start:
            raise OSError(f"bytes from {at} on instead of {start}")
        while block := response.read(_BLOCK):
            useful = block[max(0, start - at) :]  # a server without Range sends all again
            at += len(block)
            if useful:
                yield useful


class Putter:
    """Sends bytes by HTTP PUT, over one connection that is kept for the next PUT to the same host. For one thread.

    Args:
        timeout: seconds in which nothing is sent or received.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._host = ""
        self._connection: http.client.HTTPConnection | None = None
        self._proxied: dict[str, str] | None = None  # headers for a proxy that takes whole URLs

    def put(self, url: str, blocks: Iterable[bytes], size: int, headers: Mapping[str, str] = _NONE) -> None:
        """Sends blocks of `size` bytes in all to a URL, with the headers that belong to it.

        Raises:
            UploadError: the URL is not http or https.
            OSError, http.client.HTTPException: the server cannot be reached or refuses. The text has no part of the
                URL, whose signature is a secret.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise UploadError(f"the scheme of an upload URL must be http or https, got {parts.scheme!r}")
        kept = False
        try:
            connection = self._connected(parts)
            path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            target = path if self._proxied is None else f"{parts.scheme}://{parts.netloc}{path}"
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it hung up
                every = {**headers, "Content-Length": str(size), **(self._proxied or {})}
                connection.request("PUT", target, body=blocks, headers=every)
            response = connection.getresponse()
            said = response.read(_MOST_OF_AN_ANSWER).decode(errors="replace")
            if response.status // 100 != 2:
                raise OSError(f"HTTP status {response.status} {response.reason} {_code(said)}".rstrip())
            kept = response.isclosed()  # all was read
        finally:
            if not kept:
                self.close()

    def close(self) -> None:
        """Closes the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _connected(self, parts: SplitResult) -> http.client.HTTPConnection:
        host = f"{parts.scheme}://{parts.netloc}"
        if self._connection is None or host != self._host:
            self.close()
            self._host = host
            self._connection = self._connect(parts)
        return self._connection

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """A connection to the host, or to the proxy that the environment names for it."""
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        host, self._proxied = parts.hostname or "", None
        named = None if is_this_machine(host) or proxy_bypass(host) else getproxies().get(parts.scheme)
        if not named:
            return kind(host, parts.port, timeout=self._timeout)
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        headers = {}
        if proxy.username is not None:
            words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(words.encode()).decode()}"
        connection = kind(proxy.hostname or "", proxy.port, timeout=self._timeout)
        if parts.scheme == "https":
            connection.set_tunnel(host, parts.port, headers)
        else:
            self._proxied = headers
        return connection


def _code(said: str) -> str:
    """The error code in the XML that a store answers, "" where there is none."""
    found = re.search(r"<Code>(\w{1,100})</Code>", said)
    return found[1] if found else ""


def _start(content_range: str) -> int:
    found = re.match(r"bytes (\d+)-", content_range)
    if found is None:
        raise OSError(f"a partial answer with Content-Range {content_range!r}")
    return int(found[1])
