"""Values from a user's file in an error text: the one place that decides how much of the file an error quotes.

A service reads files that its callers may not read. For their errors, contents are `hidden`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

MAX_CHARACTERS = 40
"""Of a quoted text, before escaping."""

_T = TypeVar("_T")

_are_hidden = ContextVar("hidden", default=False)


@contextmanager
def hidden(*, when: bool = True) -> Iterator[None]:
    """In its block, and only in this thread or task, error texts describe values and do not quote them."""
    token = _are_hidden.set(when)
    try:
        yield
    finally:
        _are_hidden.reset(token)


def with_discreet_errors(work: Callable[[], _T], *errors: type[Exception], when: bool = True) -> _T:
    """The result of `work`, which may name columns and labels. If it raises one of `errors`, it runs again with
    contents hidden, so that the error that is raised quotes nothing."""
    try:
        return work()
    except errors:
        if not when:
            raise
    with hidden():
        return work()


def shown(value: object) -> str:
    """A value for an error text: text is quoted with its special characters escaped, at most 40 characters of it.
    Where contents are hidden: what kind of value it is, in angle brackets."""
    if _are_hidden.get():
        return _described(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= MAX_CHARACTERS else f"{value[:MAX_CHARACTERS]!r}…"
    if isinstance(value, int | float):
        return str(value)[:MAX_CHARACTERS]
    return f"a {type(value).__name__}"


def _is_plain(name: str) -> bool:
    return name.isprintable() and name != "" and name == name.strip()


def listed(names: Iterable[object], limit: int = 20) -> str:
    """Names for an error text: the first `limit`, and how many more there are. Short printable ones are without quotes,
    unless they are empty, or begin or end with a blank. Where contents are hidden: how many there are."""
    if _are_hidden.get():
        return f"<{len(list(names)):,} names>"
    every = [
        name if isinstance(name, str) and len(name) <= MAX_CHARACTERS and _is_plain(name) else shown(name)
        for name in names
    ]
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more


def _described(value: object) -> str:
    if isinstance(value, str):
        return f"<text of {len(value):,} characters>"
    return "<a number>" if isinstance(value, int | float) else f"<a {type(value).__name__}>"
