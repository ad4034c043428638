"""One ranged read over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from mvprune.common.addresses import is_loopback
from mvprune.common.exceptions import DownloadError

_BLOCK = 1 << 18


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
    opener = build_opener(*[ProxyHandler({})] if is_loopback(parts.hostname or "") else [])
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


def _start(content_range: str) -> int:
    found = re.match(r"bytes (\d+)-", content_range)
    if found is None:
        raise OSError(f"a partial answer with Content-Range {content_range!r}")
    return int(found[1])
