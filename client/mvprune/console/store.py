"""Sessions that outlive the process: a folder with one file for each.

A file is encrypted with a key that only the session's browser has: its cookie. Whoever reads the folder learns nothing,
and there is no other key to keep. A cookie is worth nothing once the file is gone.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12  # bytes
_ENDING = ".session"
_FORMAT = 1  # another one where `sessions` keeps something else


class Store:
    """The folder.

    Args:
        folder: is made if it is not there.
        console: of which console the sessions are: another one, with other settings, does not open them.

    Raises:
        OSError: nothing can be written there.
    """

    def __init__(self, folder: Path, console: str) -> None:
        self._folder, self._console = folder, console
        self._lock = Lock()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._draft(b"")
        draft.unlink()

    def save(self, name: str, content: Mapping[str, Any], *, is_new: bool = False) -> None:
        """Keeps a session. One that has ended meanwhile stays so, unless it is new."""
        nonce = secrets.token_bytes(_NONCE)
        sealed = nonce + AESGCM(self._key(name)).encrypt(nonce, json.dumps(content).encode(), None)
        path = self._path(name)
        with self._lock:
            if is_new or path.exists():
                self._draft(sealed).replace(path)

    def load(self, name: str) -> dict[str, Any] | None:
        """What was kept; None: there is no such session."""
        try:
            sealed = self._path(name).read_bytes()
            opened = AESGCM(self._key(name)).decrypt(sealed[:_NONCE], sealed[_NONCE:], None)
        except (OSError, ValueError, InvalidTag):
            return None
        found: dict[str, Any] = json.loads(opened)
        return found

    def used(self, name: str) -> float | None:
        """When a session was used last; None: there is none."""
        try:
            return self._path(name).stat().st_mtime
        except OSError:
            return None

    def touch(self, name: str) -> bool:
        """Notes that a session is used. Returns whether there is one."""
        try:
            os.utime(self._path(name))
        except OSError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Ends a session."""
        with self._lock:
            self._path(name).unlink(missing_ok=True)

    def tidy(self, seconds: float, most: int) -> None:
        """Ends those that were not used for so long, and of more than `most` those that were idle longest."""
        found = []
        for path in self._folder.glob(f"*{_ENDING}"):
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, path))
        found.sort(reverse=True)
        oldest = time.time() - seconds
        for place, (used, path) in enumerate(found):
            if place >= most or used < oldest:
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._derived(name, 'file').hex()}{_ENDING}"

    def _key(self, name: str) -> bytes:
        return self._derived(name, "key")

    def _derived(self, name: str, purpose: str) -> bytes:
        return hmac.digest(name.encode(), f"{purpose} {_FORMAT} of {self._console}".encode(), "sha256")

    def _draft(self, content: bytes) -> Path:
        path = self._folder / f".{secrets.token_hex(8)}"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return path
