"""Suggestions for mistyped names."""

from __future__ import annotations

import re
from collections.abc import Iterable

_INSIDE = 1.0  # how alike names are of which one has all parts of the other, halfway to the likeness of their spelling
_LIKE = 0.7  # share of the characters that two names have in the same order


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """The end of an error's sentence: "; did you mean NAME?", or "" where no known name is like the given one.

    Names are alike in spelling, or in their parts, whatever the order of these: bert-tiny, tiny-bert. A name with an
    owner is like its last part too: bert-tiny, google/bert-tiny. Two names are alike if one has all parts of the other,
    at least two: bert-tiny, bert-tiny-uncased.
    """
    from difflib import SequenceMatcher  # only errors need it

    def likeness(name: str) -> float:
        pairs = {(given.casefold(), name.casefold()), (_parts(given), _parts(name))}
        pairs |= {(one, other.rpartition("/")[2]) for one, other in pairs if "/" not in given}
        alike = max(SequenceMatcher(None, one, other).ratio() for one, other in pairs)
        parts = [set(_parts(one).split()) for one in (given, name.rpartition("/")[2])]
        is_inside = min(map(len, parts)) > 1 and (parts[0] <= parts[1] or parts[1] <= parts[0])
        return max(alike, (_INSIDE + alike) / 2) if is_inside else alike

    best = max(((likeness(name), name) for name in known), default=(0.0, ""))
    return f"; did you mean {best[1]}?" if best[0] >= _LIKE else ""


def must_be_one_of(known: Iterable[str], given: str) -> str:
    """An error's sentence, to follow the name of what was given."""
    names = list(known)
    return f"must be one of {', '.join(names)}, got {given!r}{did_you_mean(given, names)}"


def unknown_options(arguments: Iterable[str], known: Iterable[str]) -> str:
    """The end of an error's sentence about a command line: "; did you mean OPTION?" for its first unknown option that
    is like a known one, or ""."""
    options = list(known)
    for argument in arguments:
        if argument == "--":
            break
        name = argument.partition("=")[0]
        is_option = name.startswith("-") and len(name) > 2 and name not in options
        if is_option and (hint := did_you_mean(name, options)):
            return hint
    return ""


def _parts(name: str) -> str:
    return " ".join(sorted(re.findall(r"[a-z0-9]+", name.casefold())))
