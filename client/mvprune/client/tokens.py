"""Tokens that change while a client runs: those in files, which Kubernetes renews, and those that GitHub makes for a
job on request."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Protocol
from urllib.parse import quote, urlsplit

from mvprune.common.addresses import is_this_machine
from mvprune.common.exceptions import ServerUnreachable, bad_field

AUDIENCE = "MVPRUNE_OIDC_AUDIENCE"
_URL, _REQUEST_TOKEN = "ACTIONS_ID_TOKEN_REQUEST_URL", "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
_EARLY_SECONDS = 60.0  # before its end a token is replaced
_SECONDS, _TRIES, _PAUSE_SECONDS = 10.0, 3, 1.0
_BYTES = 64 << 10


class TokenSource(Protocol):
    """Where tokens come from. Threads may share one."""

    token: str
    """The newest; "" before the first."""

    def is_due(self) -> bool:
        """Whether there may be a newer token. Fast."""

    def renew(self) -> None:
        """Gets the newest token. Blocks. Raises MvpruneError."""


class FileTokens:
    """The token in a file, which is read again when it changes.

    Args:
        read: reads it. Raises InvalidArgument.
    """

    def __init__(self, file: Path, read: Callable[[], str]) -> None:
        self._file = file
        self._read = read
        self._seen = _identity(file)
        self.token = read()

    def is_due(self) -> bool:
        """Whether the file is another than it was."""
        return _identity(self._file) != self._seen

    def renew(self) -> None:
        """Reads the file."""
        seen = _identity(self._file)
        self.token, self._seen = self._read(), seen


class GitHubTokens:
    """Tokens of GitHub Actions for the job that runs this, which last some minutes each.

    Args:
        audience: whom they are for, as the server's file of issuers has it.

    Raises:
        InvalidArgument: GitHub has not allowed the job to ask for tokens.
    """

    def __init__(self, audience: str) -> None:
        url, self._secret = os.environ.get(_URL, ""), os.environ.get(_REQUEST_TOKEN, "")
        if not (url and self._secret):
            text = f"is set, but GitHub's {_URL} is not; give the job `permissions: id-token: write`"
            raise bad_field(AUDIENCE, text)
        parts = urlsplit(url)
        if parts.scheme != "https" and not is_this_machine(parts.hostname or ""):
            raise bad_field(_URL, "must be an https URL")
        self._url = f"{url}{'&' if parts.query else '?'}audience={quote(audience, safe='')}"
        self._lock = Lock()
        self._end = 0.0
        self.token = ""

    def is_due(self) -> bool:
        """Whether the token ends soon."""
        return time.time() > self._end - _EARLY_SECONDS

    def renew(self) -> None:
        """Asks GitHub for a token."""
        with self._lock:
            if self.is_due():
                self.token = self._ask()
                self._end = _end_of(self.token)

    def _ask(self) -> str:
        from urllib.request import Request, urlopen  # slow to import, and only some jobs of CI need it

        request = Request(self._url, headers={"Authorization": f"bearer {self._secret}"})  # noqa: S310 (checked above)
        left = _TRIES
        while True:
            left -= 1
            try:
                with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                    return str(json.loads(answer.read(_BYTES))["value"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                if not left:
                    raise ServerUnreachable(f"GitHub gave no token for this job ({_words(error)})") from None
            time.sleep(_PAUSE_SECONDS)


def _identity(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def _end_of(token: str) -> float:
    """When a JWT ends, in seconds since 1970; a minute from now if it does not say so."""
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (ValueError, KeyError, IndexError, TypeError):
        return time.time() + 2 * _EARLY_SECONDS


def _words(error: Exception) -> str:
    from urllib.error import HTTPError, URLError

    if isinstance(error, HTTPError):
        return f"HTTP {error.code}"
    return str(error.reason) if isinstance(error, URLError) else "its answer is none"
