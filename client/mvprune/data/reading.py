"""The report on how a task's data was read: its columns, and notes; and the spelling of labels."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mvprune.common.excerpts import listed

if TYPE_CHECKING:
    from mvprune.data.kinds.base import TaskData

# The soft hyphen, zero-width spaces, marks and controls of direction, the word joiner, invisible operators, and U+FEFF,
# the byte order mark.
_MEANINGLESS: dict[int, None] = dict.fromkeys(
    (0xAD, 0x61C, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
)
# Also joiners, blank letters, and selectors of a character's variant, which mean something in some scripts.
_WITH_MEANING = (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x200C, 0x200D, 0x3164, 0xFFA0)
_VARIANTS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_INVISIBLE: dict[int, None] = _MEANINGLESS | dict.fromkeys((*_WITH_MEANING, *_VARIANTS))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How data was read. It is not compared: data sets that differ only in it are equal.

    Attributes:
        columns: sentences that name the columns; () for formats without columns.
        notes: what was guessed, was replaced or looks wrong, a sentence each.
        test: data whose `validation` examples the result is measured on once, which nothing is chosen by; None: none.
    """

    columns: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    test: TaskData | None = field(default=None, compare=False)


def name_of(path: Path | str) -> str:
    """A file's name without its folders; a data set's name unchanged."""
    return path.name if isinstance(path, Path) else path


def columns_read(found: Mapping[Path | str, object]) -> tuple[str, ...]:
    """Sentences that name the columns of each file, one where all have the same; "" is what a file without has."""
    texts = {name_of(path): text for path, columns in found.items() if (text := str(columns))}
    if len(set(texts.values())) == 1:
        return (f"columns: {next(iter(texts.values()))}",)
    return tuple(f"columns of {name}: {text}" for name, text in texts.items())


def spelled(text: str) -> str:
    """A label or tag as it is read: in NFC, so that é of one character and é of two are the same, and without invisible
    characters that mean nothing in a name, such as a zero-width space."""
    visible = text.translate(_MEANINGLESS)
    return unicodedata.normalize("NFC", text if visible == text else visible.strip())


def plain(name: str) -> str:
    """The name of a label or column without case, Unicode's form and invisible characters. A joiner can mean something
    (a letter's form in Persian, the members of an emoji), so names that differ only in it are compared in this way, but
    not read as one label."""
    return unicodedata.normalize("NFC", name.translate(_INVISIBLE).casefold())


def plain_label(name: str) -> str:
    """`plain`, with '_' for '-': what all spellings of one label have in common."""
    return plain(name).replace("-", "_")


def notes_on_spelling(written: Iterable[str], name: str, what: str = "labels") -> Iterator[str]:
    """Notes on labels or tags that are not read as they are written, but as `spelled`.

    Args:
        written: each label once, as it is in the data; those that are read as written may be left out.
        name: of the file.
        what: what they are called.
    """
    changed = [label for label in written if spelled(label) != label]
    if any(not unicodedata.is_normalized("NFC", label) for label in changed):
        yield f"{what} of {name} in Unicode's decomposed form (NFD) are read in the composed one (NFC)"
    if hidden := sorted(label for label in changed if label.translate(_MEANINGLESS) != label):
        meant = listed(dict.fromkeys(map(spelled, hidden)))
        yield f"the {what} {listed(hidden)} of {name} are read as {meant}, without {_code_points(hidden, _MEANINGLESS)}"


def alike(names: Iterable[str]) -> list[str]:
    """Notes about names that differ in case, '-' and '_', or in invisible characters, only."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(plain_label(name), []).append(name)
    notes = []
    for group in (group for group in groups.values() if len(group) > 1):
        differences = "case, '-' or '_'"
        if invisible := _code_points(group, _INVISIBLE):
            differences = f"case, '-', '_' or invisible characters ({invisible})"
        notes.append(f"the labels {listed(group)} differ only in {differences}, and are read as {len(group)} classes")
    return notes


def _code_points(names: Iterable[str], table: Mapping[int, None]) -> str:
    """U+200B (ZERO WIDTH SPACE) and others of a table that the names have."""
    found = sorted({character for name in names for character in name if ord(character) in table})
    return ", ".join(f"U+{ord(one):04X} ({unicodedata.name(one, 'unnamed')})" for one in found)


def shared(train: Iterable[object], validation: Iterable[object]) -> list[str]:
    """A note where examples to evaluate on are also training examples, so that they measure memory."""
    known = set(train)
    rows = list(validation)
    count = sum(row in known for row in rows)
    return [f"{count:,} of {len(rows):,} validation rows are training rows too"] if count else []
