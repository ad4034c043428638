"""JSON from strangers."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_DEPTH = 64
"""Of objects and lists in each other: whoever walks through them may call itself."""


class InvalidJson(ValueError):
    """Bytes that are not strict JSON."""


def parse_json(content: bytes) -> Any:
    """Strict JSON: UTF-8, no duplicate keys, no NaN, no nesting beyond `MAX_DEPTH`, no numbers of thousands of digits.

    Raises:
        InvalidJson: the text says why.
    """
    try:
        value = json.loads(content.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except InvalidJson:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidJson(f"invalid JSON: {error}") from error
    _check_depth(value)
    return value


def _check_depth(value: Any) -> None:
    """Level by level, because it must not call itself either."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        inner = [one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list)]
        if not inner:
            return
        level = [item for items in inner for item in items]
    raise InvalidJson(f"invalid JSON: more than {MAX_DEPTH} objects and lists in each other")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise InvalidJson("invalid JSON: an object has the same key twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise InvalidJson(f"invalid JSON: {name} is not a number")
