"""Job files: what `mvpctl submit -f` reads, with errors that name file, line and column.

A document is a table of the parameters of `Client.submit`: see `mvprune.spec.parameters`. One for `mvpctl sweep create`
has a section `sweep` too.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from mvprune.cli.shared.types import duration
from mvprune.cli.shared.yaml import MAX_BYTES, BadYaml, Items, Node, Place, Scalar, Table, documents
from mvprune.common.exceptions import FieldViolation, InvalidArgument, bad_field, renamed
from mvprune.common.suggestions import did_you_mean
from mvprune.common.units import parse_size
from mvprune.sources.schemes import SCHEMES
from mvprune.spec.lookup import parameter_of
from mvprune.spec.parameter import Kind, Parameter
from mvprune.spec.parameters import PARAMETERS
from mvprune.spec.schema import SIZE_PATTERN, TIME_PATTERN

STDIN = "-"
SECTION = "sweep"
Key = tuple[str | int, ...]
"""Of a place: see `JobDocument`."""
_PREFIXES = ("job:", *SCHEMES)  # of what is no path


class Problem(NamedTuple):
    """An error and its place."""

    place: Place
    text: str


Section = Callable[[Node, dict[Key, Place], Path], tuple[dict[str, Any], list[Problem]]]
"""Reads a section: its node, where its places go, and the file's folder; to values and problems."""


@dataclass(frozen=True)
class JobDocument:
    """One job of a file.

    Attributes:
        file: its name, for errors.
        values: parameters of `Client.submit`.
        places: where each key is, where its items are ("include", 0) and where its entries are ("labels", "team");
            (): where the document begins.
        sweep: what its section `sweep` says.
    """

    file: str
    values: Mapping[str, Any]
    places: Mapping[Key, Place]
    sweep: Mapping[str, Any] = field(default_factory=dict)

    def located(self, refusal: InvalidArgument) -> InvalidArgument:
        """The server's refusal, with the place of each field that the file has."""
        return renamed(refusal, self.located_field)

    def located_field(self, field: str) -> str:
        """A field of a request with its place, if the file has it."""
        known = parameter_of(field, self.values)
        if known is None:
            return f"{located_at(self.file, self.places[()])}: {field}"
        place = self.places.get((known.name, *_part(field)))
        if known.name not in self.values or place is None:  # an option's
            return field
        return f"{located_at(self.file, place)}: {known.name}"


def read(file: str, section: Section | None = None) -> list[JobDocument]:
    """The jobs of a file of YAML or JSON, one a document; "-" is stdin.

    Args:
        section: reads the section `sweep`; None: a document must have none.

    Raises:
        InvalidArgument: it cannot be read, or something is wrong in it: all that is, each with its place.
    """
    name, folder = ("stdin", Path()) if file == STDIN else (file, Path(file).parent)
    return parse(name, _text(file), folder, section)


def parse(name: str, text: str, folder: Path, section: Section | None = None) -> list[JobDocument]:
    """The jobs of a text of YAML or JSON, one a document.

    Args:
        name: of the text, for errors.
        folder: where relative paths begin.
        section: as of `read`.

    Raises:
        InvalidArgument: something is wrong in it: all that is, each with its place.
    """
    try:
        jobs, problems = _jobs(name, folder, text, section)
    except BadYaml as error:
        raise _refused(name, [Problem(error.place, str(error))]) from None
    if problems:
        raise _refused(name, problems)
    if not jobs:
        raise bad_field(name, "holds no job")
    return jobs


def _jobs(name: str, folder: Path, text: str, section: Section | None) -> tuple[list[JobDocument], list[Problem]]:
    jobs, problems = list[JobDocument](), list[Problem]()
    for document in documents(text):
        if not isinstance(document, Table):
            problems.append(Problem(document.place, "must be keys with their values, such as model: ./m"))
            continue
        places: dict[Key, Place] = {(): document.place}
        values: dict[str, Any] = {}
        sweep: dict[str, Any] = {}
        for key, node in document.entries:
            if key.value != SECTION:
                problems += _read_key(key, node, values, places)
            elif section is None:
                rule = f"must be absent for mvpctl submit; `mvpctl sweep create -f {name}` reads it"
                problems.append(Problem(key.place, f"{SECTION}: {rule}"))
            else:
                places[(SECTION,)] = node.place
                sweep, found = section(node, places, folder)
                problems += found
        values = {key: beside(folder, key, value) for key, value in values.items()}
        jobs.append(JobDocument(name, values, places, sweep))
    return jobs, problems


def _text(file: str) -> str:
    try:
        if file == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                content = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise bad_field(file, f"cannot be read ({error.strerror})") from None
    if len(content) > MAX_BYTES:
        raise bad_field(file, f"is larger than {MAX_BYTES >> 10} KiB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _refused(file, [Problem(Place(line, 1), "is not UTF-8")]) from None


def _read_key(key: Scalar, node: Node, values: dict[str, Any], places: dict[Key, Place]) -> Iterator[Problem]:
    """Puts one key's value into `values`, or yields what is wrong with it."""
    name = str(key.value)
    known = PARAMETERS.get(name)
    if known is None:
        hint = did_you_mean(name, PARAMETERS) or "; `mvpctl submit --print-schema` lists the keys"
        yield Problem(key.place, f"must be a key of job files, got {name!r:.100}{hint}")
        return
    places[(name,)] = node.place
    if known.kind is Kind.TEXTS and isinstance(node, Items):
        places.update({(name, index): item.place for index, item in enumerate(node.items)})
        yield from (wrong(f"{name}[{i}]", item, "text") for i, item in enumerate(node.items) if not is_text(item))
        values[name] = [item.value for item in node.items if isinstance(item, Scalar)]
    elif known.kind is Kind.LABELS and isinstance(node, Table):
        places.update({(name, str(entry.value)): item.place for entry, item in node.entries})
        yield from (wrong(f"{name}.{e.value}", item, "text") for e, item in node.entries if not is_text(item))
        values[name] = {entry.value: item.value for entry, item in node.entries if isinstance(item, Scalar)}
    elif isinstance(node, Scalar) and (value := value_of(known, node)) is not None:
        values[name] = value
    else:
        yield wrong(name, node, f"one of {known.takes}" if known.words else known.takes)


def value_of(key: Parameter, node: Scalar) -> Any:
    """The value of a scalar as `Client.submit` takes it; None: it is of the wrong kind."""
    match key.kind, node.value:
        case Kind.FLAG, bool(flag):
            return flag
        case _, bool():
            return None
        case Kind.TEXT, str(text):
            return text
        case Kind.WORD, str(text) if text in key.words:
            return text
        case Kind.TIME, str(text) if re.fullmatch(TIME_PATTERN, text):
            return duration(text)
        case Kind.SIZE, str(text) if re.fullmatch(SIZE_PATTERN, text):
            return parse_size(text)
        case Kind.NUMBER | Kind.TIME, int(number) | float(number) if math.isfinite(number):
            return number
        case Kind.WHOLE | Kind.SIZE, int(number) | float(number) if math.isfinite(number) and number == int(number):
            return int(number)
    return None


def is_text(node: Node) -> bool:
    """Whether it is text."""
    return isinstance(node, Scalar) and isinstance(node.value, str)


def wrong(name: str, node: Node, rule: str) -> Problem:
    """That a key must be something else; `rule` says what."""
    remedy = ""
    match node:
        case Items():
            given = "a list"
        case Table():
            given = "a table"
        case Scalar(value=str()):
            given = repr(node.written[:100])
        case Scalar():
            given = f"the {'bool' if isinstance(node.value, bool) else 'number'} {node.written[:100]}"
            if node.value is None:
                given = "nothing"
            elif rule == "text":
                remedy = f'; write it in quotes: "{node.written[:100]}"'
    return Problem(node.place, f"{name}: must be {rule}, got {given}{remedy}")


def beside(folder: Path, name: str, value: Any) -> Any:
    """The value of a parameter: a relative path begins at the file's folder."""
    known = PARAMETERS[name]
    if known.unit not in ("file", "model") or not isinstance(value, str) or not value:
        return value
    if value.startswith(("/", "~", *_PREFIXES)):
        return value
    looks_like_path = known.unit == "file" or value.startswith(("./", "../")) or value in (".", "..")
    return str((folder / value).absolute()) if looks_like_path or (folder / value).exists() else value


def _part(field: str) -> tuple[str | int, ...]:
    """The index of a list, or the key of a label, that a field of a request ends in."""
    if field.startswith("job.labels."):
        return (field.removeprefix("job.labels."),)
    found = re.search(r"\[(\d+)\]", field)
    return (int(found[1]),) if found else ()


def _refused(file: str, problems: list[Problem]) -> InvalidArgument:
    violations = []
    for place, text in problems:
        name, separator, rest = text.partition(": ")
        violations.append(
            FieldViolation(f"{located_at(file, place)}: {name}", rest)
            if separator
            else FieldViolation(located_at(file, place), text)
        )
    return InvalidArgument(violations=violations)


def located_at(file: str, place: Place) -> str:
    """FILE:LINE:COLUMN."""
    return f"{file}:{place.line}:{place.column}"
