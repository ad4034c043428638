"""JSON from strangers."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class InvalidJson(ValueError):
    """Bytes that are not strict JSON."""


def parse_json(content: bytes) -> Any:
    """Strict JSON: UTF-8, no duplicate keys, no NaN, no nesting or numbers beyond what Python's parser takes.

    Raises:
        InvalidJson: the text says why.
    """
    try:
        return json.loads(content.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except InvalidJson:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidJson(f"invalid JSON: {error}") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise InvalidJson("invalid JSON: an object has the same key twice")
    return result


def _no_constant(name: str) -> NoReturn:
    raise InvalidJson(f"invalid JSON: {name} is not a number")
