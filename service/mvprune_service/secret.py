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
    """The key file does not hold a key; the text says why."""


def load_key(path: Path) -> bytes:
    """The server's key. It is created at the first use, readable by its owner only. Raises BadKey."""
    if not path.exists():
        _make_key(path)
    key = path.read_bytes()
    if len(key) < _KEY_BYTES:
        raise BadKey(f"key file {path} must hold {_KEY_BYTES} bytes or more, got {len(key)}")
    return key


def _make_key(path: Path) -> None:
    # Replicas that share the file may start at the same time: the link makes it appear whole, and once.
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def attempt_secret(key: bytes, attempt: str, fencing_token: int) -> str:
    """The credential that the worker of an attempt must present."""
    return hmac.new(key, f"{attempt}#{fencing_token}".encode(), hashlib.sha256).hexdigest()
