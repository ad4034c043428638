"""What OpenID Connect asks of all who deal with an issuer: its URL, its configuration, and answers of bounded size."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

_SECONDS = 5.0  # of a request
_BYTES = 256 << 10  # of an answer
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NONE: Mapping[str, str] = MappingProxyType({})


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        """None: it is an error."""


def check_url(url: str) -> None:
    """Raises ValueError for anything else than https, or http to this machine, without query and fragment."""
    try:
        parts = urlsplit(url)
        is_plain = parts.scheme == "http" and parts.hostname in _LOOPBACK
    except ValueError:
        raise ValueError("must be a URL") from None
    if not ((parts.scheme == "https" and parts.hostname) or is_plain) or parts.query or parts.fragment:
        raise ValueError("must be an https URL without query and fragment")


def fetch(
    url: str, *, form: bytes | None = None, headers: Mapping[str, str] = _NONE, ca_file: Path | None = None
) -> bytes:
    """The answer to a GET, or to a POST of a form. Redirects are errors. Blocks. Raises OSError, ValueError."""
    opener = build_opener(_NoRedirects, HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
    request = Request(url, data=form, headers=dict(headers))  # noqa: S310 (callers check it)
    with opener.open(request, timeout=_SECONDS) as answer:
        data: bytes = answer.read(_BYTES + 1)
    if len(data) > _BYTES:
        raise ValueError(f"the answer has more than {_BYTES >> 10} KiB")
    return data


def configuration(issuer: str, ca_file: Path | None = None) -> dict[str, Any]:
    """What an issuer says of itself. Blocks. Raises OSError, ValueError."""
    said = json.loads(fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration", ca_file=ca_file))
    if not isinstance(said, dict) or said.get("issuer") != issuer:
        raise ValueError("its configuration is that of another issuer")
    return said


def endpoint(said: Mapping[str, Any], name: str) -> str:
    """A URL of a configuration. Raises ValueError."""
    url = str(said.get(name))
    check_url(url)
    return url


def why(error: Exception) -> str:
    """A few words for an error of `fetch` or `configuration`."""
    if isinstance(error, HTTPError):
        return f"HTTP {error.code}"
    if isinstance(error, URLError):
        return str(error.reason)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
