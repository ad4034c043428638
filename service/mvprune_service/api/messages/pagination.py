"""Pages: their size, and opaque tokens that hold the key of the last row sent."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Sequence
from types import UnionType
from typing import Any, TypeVar, get_args

from google.protobuf.message import Message

from mvprune.data.tables import is_writable
from mvprune_service.api.access.errors import Violation, bad, invalid

M = TypeVar("M", bound=Message)
R = TypeVar("R")

Part = int | float | str | None
"""A part of a key."""

_DEFAULT, _CAP = 50, 500
_BYTES = 2 << 20  # of a page; clients refuse messages of more than 4 MiB


def page_size(asked: int) -> int:
    """The page size to use. Raises ApiError for a negative one."""
    if asked < 0:
        raise invalid(bad("page_size", asked, f"0 or more (0 means {_DEFAULT}, more than {_CAP} means {_CAP})"))
    return min(asked or _DEFAULT, _CAP)


def make_page(
    rows: Sequence[R],
    size: int,
    message: Callable[[R], M],
    key: Callable[[R], Iterable[Part]],
) -> tuple[list[M], str]:
    """Up to `size` messages, fewer where they are large, and the token of the next page, "" after the last. `rows`:
    one more than `size` where there are more; `key`: what the next page begins after."""
    messages: list[M] = []
    left = _BYTES
    for row in rows[:size]:
        made = message(row)
        left -= made.ByteSize()
        if messages and left < 0:
            break
        messages.append(made)
    more = len(messages) < len(rows)
    return messages, make_token(*key(rows[len(messages) - 1])) if more else ""


def make_token(*key: Part) -> str:
    """A token that names the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key, ensure_ascii=False).encode()).decode()


def read_token(token: str, *types: type | UnionType, query: str = "") -> list[Any] | None:
    """The key in a token made by make_token, None for the first page. `query`: what the key must begin with, where
    a list has several. Raises ApiError for anything else."""
    if not token:
        return None
    types = (str, *types) if query else types
    try:
        key = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        typed = isinstance(key, list) and len(key) == len(types) and all(map(_is_a, key, types))
        if typed and all(map(_can_be_stored, key)) and key[:1] == [query or key[0]]:
            return list(key[1:] if query else key)
    except (ValueError, RecursionError):
        pass
    raise invalid(Violation("page_token", "must be a token from an earlier page of this list; leave it empty to begin"))


def _is_a(part: Any, kind: type | UnionType) -> bool:
    """Whether a part has this type: true is no number, though Python says so."""
    return type(part) in (get_args(kind) or (kind,))


def read_number(token: str) -> int:
    """The number that a page begins after, 0 for the first page. Raises ApiError."""
    key = read_token(token, int)
    return key[0] if key else 0


def _can_be_stored(part: Part) -> bool:
    """JSON can name what no database takes."""
    if isinstance(part, str):
        return is_writable(part)
    return part is None or (math.isfinite(part) if isinstance(part, float) else abs(part) < 1 << 62)
