"""Text that a terminal can show."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # and what no encoding has


def clean(text: str) -> str:
    """Without control characters: what a server sends must not steer a terminal."""
    return _CONTROL.sub(" ", text)
