"""Filters of lists, made of what people choose."""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.common.identifiers import LABEL_KEY, LABEL_KEY_RULE


def any_of(field: str, values: Sequence[str]) -> str:
    """Whether a field has one of the values, which are words; "" if there are none. OR binds tighter than AND."""
    return " OR ".join(f"{field} = {value}" for value in values)


def all_of(*filters: str) -> str:
    """Whether all filters that are not empty hold."""
    return " AND ".join(filter(None, filters))


def of_label(text: str) -> str:
    """team=search -> labels.team = "search"; team -> labels:team. Raises ValueError with a sentence."""
    key, separator, value = text.partition("=")
    if not LABEL_KEY.fullmatch(key):
        raise ValueError(f"must be KEY or KEY=VALUE with a key of {LABEL_KEY_RULE}, got {text!r}")
    return f"labels.{key} = {quoted(value)}" if separator else f"labels:{key}"


def quoted(text: str) -> str:
    """A text as a filter takes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
