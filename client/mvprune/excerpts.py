"""Values from a user's file in an error text: the one place that decides how much of the file an error quotes."""

from __future__ import annotations

from collections.abc import Iterable

MAX_CHARACTERS = 40
"""Of a quoted text, before escaping."""


def shown(value: object) -> str:
    """A value for an error text: text is quoted with its special characters escaped, at most 40 characters of it."""
    if isinstance(value, str):
        return repr(value) if len(value) <= MAX_CHARACTERS else f"{value[:MAX_CHARACTERS]!r}…"
    if isinstance(value, int | float):
        return str(value)[:MAX_CHARACTERS]
    return f"a {type(value).__name__}"


def listed(names: Iterable[object], limit: int = 20) -> str:
    """Names for an error text: the first `limit`, short printable ones without quotes, and how many more there are."""
    every = [
        name if isinstance(name, str) and len(name) <= MAX_CHARACTERS and name.isprintable() else shown(name)
        for name in names
    ]
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
