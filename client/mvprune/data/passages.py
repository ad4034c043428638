"""Plain text, to model language on: lines of text files, a column of a table, rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mvprune.data.columns import Columns, Found, check_late, find_column
from mvprune.data.reading import Reading, columns_read
from mvprune.data.tables import TABLES, Table, checked_text, read_table
from mvprune.data.tasks import Task
from mvprune.data.textfiles import DataError, read_lines, suffix_of

TEXTS = ("text", "passage", "content", "document", "body", "sentence", "abstract")


@dataclass(frozen=True)
class PassageData(Reading):
    """A task's texts, none blank.

    Attributes:
        task: the task.
        train: texts to train on, in their order.
        validation: texts to evaluate on.
    """

    task: Task
    train: tuple[str, ...]
    validation: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of both splits."""
        digest = hashlib.sha256()
        for split in (self.train, self.validation):
            digest.update(json.dumps(split, ensure_ascii=False, separators=(",", ":")).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Passages:
    """Texts as they were read, at least one.

    Attributes:
        path: the file, or the name of the data set.
        texts: none of them blank.
        read: the column, in words; "" where there are none.
    """

    path: Path | str
    texts: tuple[str, ...]
    read: str = ""


def read_passages(task: Task, train: Passages, validation: Passages) -> PassageData:
    """The data of a task."""
    read = {split.path: split.read for split in (train, validation) if split.read}
    return PassageData(task, train.texts, validation.texts, columns=columns_read(read) if read else ())


def read_validation_passages(task: Task, passages: Passages) -> PassageData:
    """Texts to evaluate a model on; there is nothing to train on."""
    return PassageData(
        task, (), passages.texts, columns=columns_read({passages.path: passages.read}) if passages.read else ()
    )


def passages_in_file(path: Path, columns: Columns) -> Passages:
    """The texts of a table (by its suffix), or else the lines of a text file that are not blank. Raises DataError."""
    if suffix_of(path) in TABLES:
        return passages_in_table(read_table(path), columns)
    if columns != Columns():
        raise DataError(path, "a text file has no columns; leave the names of columns out")
    return _some(path, (text for _, line in read_lines(path) if (text := line.strip())))


def passages_in_table(table: Table, columns: Columns) -> Passages:
    """The texts in one column of a table; blank ones are passed over. Raises DataError."""

    def choose(table: Table) -> tuple[str]:
        return (find_column(table, "text", columns.text, TEXTS),)

    def texts() -> Iterator[str]:
        for line, cells in table.rows(chosen):
            if isinstance(cells, str):
                raise DataError(table.path, cells, line=line, unit=table.unit)
            if isinstance(cells[0], str) and not cells[0].strip():
                continue
            yield checked_text(table, line, chosen[0], cells[0]).strip()

    chosen = choose(table)
    found = _some(table.path, texts(), str(Found("", chosen, guessed=columns.text is None)))
    check_late(table, chosen, choose)
    return found


def _some(path: Path | str, texts: Iterator[str], read: str = "") -> Passages:
    kept = tuple(texts)
    if not kept:
        raise DataError(path, "there is no text")
    return Passages(path, kept, read)
