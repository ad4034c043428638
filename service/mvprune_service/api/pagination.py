"""Page sizes and opaque page tokens: the key of the last row sent."""

from __future__ import annotations

import base64
import json

from mvprune_service.api.errors import Violation, invalid

_DEFAULT, _CAP = 50, 500


def page_size(asked: int) -> int:
    """The page size to use. Raises ApiError for a negative one."""
    if asked < 0:
        raise invalid(Violation("page_size", f"got {asked}; allowed: 0 (default {_DEFAULT}) and up, capped at {_CAP}"))
    return min(asked or _DEFAULT, _CAP)


def make_token(*key: int | str) -> str:
    """A token that names the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode()


def read_token(token: str, *types: type) -> list[int | str] | None:
    """The key in a token made by make_token, None for the first page. Raises ApiError for anything else."""
    if not token:
        return None
    try:
        key = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        typed = isinstance(key, list) and [type(part) for part in key] == list(types)
        if typed and all(abs(part) < 1 << 62 for part in key if isinstance(part, int)):
            return list(key)
    except (ValueError, RecursionError):
        pass
    raise invalid(Violation("page_token", "is not a token from an earlier page; leave it empty for the first page"))
