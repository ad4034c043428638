"""One ranged read over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from mvprune._endpoint import is_loopback
from mvprune._exceptions import DownloadError

_BLOCK = 1 << 18


def read_url(url: str, offset: int, timeout: float) -> Iterator[bytes]:
    """The bytes of a URL from `offset` on, until they end or the connection does: the caller knows how many to expect.

    Args:
        timeout: seconds without a byte.

    Raises:
        DownloadError: the URL is not http or https.
        OSError, http.client.HTTPException: the server cannot be reached or refuses.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise DownloadError(f"refused: a download URL with the scheme {parts.scheme!r}; allowed: http, https")
    opener = build_opener(*[ProxyHandler({})] if is_loopback(parts.hostname or "") else [])
    request = Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})  # noqa: S310
    with opener.open(request, timeout=timeout) as response:
        at = _start(response.headers.get("Content-Range", "")) if response.status == 206 else 0
        if at > offset:
            raise OSError(f"bytes from {at} on instead of {offset}")
        while block := response.read(_BLOCK):
            wanted = block[max(0, offset - at) :]  # a server without Range sends all again
            at += len(block)
            if wanted:
                yield wanted


def _start(content_range: str) -> int:
    found = re.match(r"bytes (\d+)-", content_range)
    if found is None:
        raise OSError(f"a partial answer with Content-Range {content_range!r}")
    return int(found[1])
