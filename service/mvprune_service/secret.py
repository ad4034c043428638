"""Credentials of attempts: derived from the server's key, never stored."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

_KEY_BYTES = 32


class BadKey(Exception):
    """The key file holds no key; the text says so."""


def load_key(path: Path) -> bytes:
    """The server's key; made on first use, readable by its owner alone. Raises BadKey."""
    if not path.exists():
        _make_key(path)
    key = path.read_bytes()
    if len(key) < _KEY_BYTES:
        raise BadKey(f"{path} holds {len(key)} bytes; a key has {_KEY_BYTES} or more")
    return key


def _make_key(path: Path) -> None:
    # Replicas that share the file may start together: it appears whole, and once.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def attempt_secret(key: bytes, attempt: str, fencing_token: int) -> str:
    """What the worker of one attempt must present."""
    return hmac.new(key, f"{attempt}#{fencing_token}".encode(), hashlib.sha256).hexdigest()
