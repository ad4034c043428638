"""Credentials of attempts: derived from the server's key, never stored."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path


def load_key(path: Path) -> bytes:
    """The server's key; made on first use, readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))
    return path.read_bytes()


def attempt_secret(key: bytes, attempt: str, fencing_token: int) -> str:
    """What the worker of one attempt must present."""
    return hmac.new(key, f"{attempt}#{fencing_token}".encode(), hashlib.sha256).hexdigest()
