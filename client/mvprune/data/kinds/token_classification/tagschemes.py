"""How tags are spelled: a position in an entity, and the entity's type.

Positions are those of IOB1, IOB2, IOE, IOBES, BILOU and BMES: B, I, E, M, S, L, U. They come before the type (B-PER) or
after it (PER-B), with one of several separators.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from mvprune.common.excerpts import listed

OUTSIDE = "O"
POSITIONS = "BIEMSLU"

_SEPARATOR = r"[-_:./|]"
_USUAL = re.compile(rf"([{POSITIONS}])(?:-(.*))?", re.DOTALL)
_PREFIXED = re.compile(rf"(?P<position>[{POSITIONS}]){_SEPARATOR}(?P<type>.+)", re.DOTALL | re.IGNORECASE)
_SUFFIXED = re.compile(rf"(?P<type>.+){_SEPARATOR}(?P<position>[{POSITIONS}])", re.DOTALL | re.IGNORECASE)

Split = Callable[[str], tuple[str, str]]
"""From a tag to its position (O outside of entities) and its type ("" where it has none)."""


def looks_like_a_tag(text: str) -> bool:
    """Whether a text is O or has a position before a type, by itself."""
    return text == OUTSIDE or bool(re.fullmatch(rf"[{POSITIONS}][-_].+", text))


def split_tags(names: Collection[str]) -> Split:
    """A function that splits the tags of a set into positions and types.

    One spelling must fit every tag of the set except O, and B or I must be among the positions. Otherwise, a tag that
    looks like B-PER is split, and any other tag is a type. In a set of only positions, each stands for entities of one
    type; in other sets a tag of one letter is a type, such as L for a place.
    """
    for pattern in (_PREFIXED, _SUFFIXED):
        matched = _matched(names, pattern)
        if matched is not None and {position for position, _ in matched.values()} & {"B", "I"}:
            return lambda tag: matched.get(tag, (OUTSIDE, ""))
    is_bare = set(names) <= {OUTSIDE, *POSITIONS} and bool({"B", "I"} & set(names))
    outside = OUTSIDE if OUTSIDE in names else OUTSIDE.lower()
    return lambda tag: (OUTSIDE, "") if tag == outside else _usual(tag, is_bare=is_bare)


def scheme_notes(names: Collection[str]) -> list[str]:
    """Notes about tags that are read as types although the others of the set have positions."""
    split = split_tags(names)
    parts = {name: part for name in names if (part := split(name))[0] != OUTSIDE}
    odd = [name for name, (position, kind) in parts.items() if (position, kind) == ("I", name) and len(name) > 1]
    if not odd or len(odd) == len(parts):
        return []
    rule = "not of the form of the others, such as B-PER"
    return [f"the tags {listed(odd)} are {rule}: each is read as the type of an entity"]


def _matched(names: Collection[str], pattern: re.Pattern[str]) -> dict[str, tuple[str, str]] | None:
    found: dict[str, tuple[str, str]] = {}
    for name in names:
        if name.upper() == OUTSIDE:
            continue
        match = pattern.fullmatch(name)
        if match is None:
            return None
        found[name] = match["position"].upper(), match["type"]
    return found


def _usual(tag: str, *, is_bare: bool) -> tuple[str, str]:
    match = None if tag in POSITIONS and not is_bare else _USUAL.fullmatch(tag)
    return (match[1], match[2] or "") if match else ("I", tag)
