"""YAML with places: values that know where they were written. JSON is read as the YAML that it is.

What is not read: aliases and tags, which a list of options needs none of, and which can make little text into a lot of
memory or into objects. Plain words mean what YAML 1.2 says: `on` is a word, 3e-5 a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_BYTES = 64 << 10
MAX_DEPTH = 16
_TAG = "tag:yaml.org,2002:"
_SCALARS = {  # by kind: how it is written, and the first characters that it may have ("": nothing is written)
    "null": (r"(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    "bool": (r"(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    "int": (r"[-+]?[0-9]+$", list("-+0123456789")),
    "float": (r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", list("-+.0123456789")),
}


@dataclass(frozen=True)
class Place:
    """Where something is; both count from 1."""

    line: int
    column: int

    @classmethod
    def of(cls, mark: Any) -> Place:
        """The place of one of yaml's marks."""
        return cls(mark.line + 1, mark.column + 1)


@dataclass(frozen=True)
class Scalar:
    """A value: text, a number, a bool or None; `written` is how it stands there."""

    value: str | int | float | bool | None
    written: str
    place: Place


@dataclass(frozen=True)
class Items:
    """A list."""

    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True)
class Table:
    """A mapping with its keys, in their order."""

    entries: tuple[tuple[Scalar, Node], ...]
    place: Place


Node = Scalar | Items | Table


class BadYaml(Exception):
    """Text that is not read, and where that shows."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


class _Loader(yaml.SafeLoader):
    """Composes nodes, of plain kinds alone, and makes no objects."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (as in the base)
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        place = Place.of(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BadYaml(place, "must be written out, got an anchor or an alias")
        if getattr(event, "tag", None):
            raise BadYaml(place, f"must have no tag, got {event.tag}")
        if self.depth == MAX_DEPTH:
            raise BadYaml(place, f"is nested more than {MAX_DEPTH} deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_kind}", re.compile(_pattern), _first)


def documents(text: str) -> Iterator[Node]:
    """The documents of a stream; those without any content are left out. Raises BadYaml."""
    if text.lstrip().startswith(("{", "[")):
        text = text.replace("\t", " ")  # JSON's blanks; in its strings a tab is written \t
    try:
        loader = _Loader(text)
        while loader.check_node():
            root = loader.get_node()
            if root is not None and root.tag != f"{_TAG}null":
                yield _node(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f"{error.context}: " if error.context else ""
        raise BadYaml(Place.of(mark) if mark else Place(1, 1), f"{context}{error.problem}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, error.position - before.rfind("\n"))
        raise BadYaml(place, f"holds U+{error.character:04X}, which YAML does not allow") from None


def _node(node: Any) -> Node:
    place = Place.of(node.start_mark)
    if isinstance(node, yaml.SequenceNode):
        return Items(tuple(map(_node, node.value)), place)
    if isinstance(node, yaml.ScalarNode):
        return Scalar(_value(node, place), node.value, place)
    entries: dict[str, tuple[Scalar, Node]] = {}
    for key, value in node.value:
        found = _node(key)
        if not isinstance(found, Scalar) or not isinstance(found.value, str):
            raise BadYaml(found.place, "must be text, as every key")
        if found.value in entries:
            first = entries[found.value][0].place.line
            raise BadYaml(found.place, f"{found.value}: is there twice, first in line {first}")
        entries[found.value] = (found, _node(value))
    return Table(tuple(entries.values()), place)


def _value(node: yaml.ScalarNode, place: Place) -> str | int | float | bool | None:
    written: str = node.value
    match node.tag.removeprefix(_TAG):
        case "null":
            return None
        case "bool":
            return written.lower() == "true"
        case "int" if len(written) <= 30:
            return int(written)
        case "int" | "float":
            return float(written)
    try:
        return written.encode("utf-16", "surrogatepass").decode("utf-16")  # JSON writes 😀 as a pair of surrogates
    except UnicodeDecodeError:
        raise BadYaml(place, "holds half of a character") from None
