"""What is reported about how a task's data was read: its columns, and notes; and the spelling of labels."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mvprune.common.excerpts import listed


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How data was read. It is not compared: data sets that differ only in it are equal.

    Attributes:
        columns: sentences that name the columns; () for formats without columns.
        notes: what was guessed, was replaced or looks wrong, a sentence each.
    """

    columns: tuple[str, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)


def name_of(path: Path | str) -> str:
    """A file's name without its folders; a data set's name unchanged."""
    return path.name if isinstance(path, Path) else path


def columns_read(found: Mapping[Path | str, object]) -> tuple[str, ...]:
    """Sentences that name the columns of each file, one where all have the same."""
    texts = {name_of(path): str(columns) for path, columns in found.items()}
    if len(set(texts.values())) == 1:
        return (f"columns: {next(iter(texts.values()))}",)
    return tuple(f"columns of {name}: {text}" for name, text in texts.items())


def composed(text: str) -> str:
    """Text in NFC: é of one character and é of two are the same label."""
    return unicodedata.normalize("NFC", text)


def plain_label(name: str) -> str:
    """A label's name without the differences between spellings of one label: case, '-' for '_', Unicode's form."""
    return unicodedata.normalize("NFC", name.casefold()).replace("-", "_")


def alike(names: Iterable[str]) -> list[str]:
    """Notes about names that differ in case, '-' and '_' only."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(plain_label(name), []).append(name)
    return [
        f"the labels {listed(group)} differ only in case, '-' or '_', and are read as {len(group)} classes"
        for group in groups.values()
        if len(group) > 1
    ]


def shared(train: Iterable[object], validation: Iterable[object]) -> list[str]:
    """A note where examples to evaluate on are also training examples, so that they measure memory."""
    known = set(train)
    rows = list(validation)
    count = sum(row in known for row in rows)
    return [f"{count:,} of {len(rows):,} validation rows are training rows too"] if count else []
