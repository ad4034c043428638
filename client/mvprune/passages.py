"""Plain text, to model language on: lines of text files, a column of a table, rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mvprune.columns import Columns, find_column
from mvprune.tables import Table, checked_text, read_table
from mvprune.tasks import Task
from mvprune.textfiles import DataError, read_lines, suffix_of

TEXTS = ("text", "passage", "content", "document", "body", "sentence", "abstract")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")


@dataclass(frozen=True)
class PassageData:
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


def read_passages(
    task: Task,
    train_name: Path | str,
    train: Iterator[str],
    validation_name: Path | str,
    validation: Iterator[str],
) -> PassageData:
    """The data of a task.

    Raises:
        DataError: a split without text, or what its file has.
    """
    return PassageData(task, _some(train_name, train), _some(validation_name, validation))


def read_validation_passages(task: Task, name: Path | str, passages: Iterator[str]) -> PassageData:
    """Texts to evaluate a model on; there is nothing to train on. Raises DataError."""
    return PassageData(task, (), _some(name, passages))


def passages_in_file(path: Path, columns: Columns) -> Iterator[str]:
    """The texts of a table (by its suffix), or else the lines of a text file that are not blank. Raises DataError."""
    if suffix_of(path) in _TABLES:
        yield from passages_in_table(read_table(path), columns)
        return
    if columns != Columns():
        raise DataError(path, "a text file has no columns; leave the names of columns out")
    for _, line in read_lines(path):
        if text := line.strip():
            yield text


def passages_in_table(table: Table, columns: Columns) -> Iterator[str]:
    """The texts in one column of a table; blank ones are passed over. Raises DataError."""
    name = find_column(table, "text", columns.text, TEXTS)
    for line, cells in table.rows([name]):
        if isinstance(cells, str):
            raise DataError(table.path, cells, line=line, unit=table.unit)
        if isinstance(cells[0], str) and not cells[0].strip():
            continue
        yield checked_text(table, line, name, cells[0]).strip()


def _some(path: Path | str, passages: Iterator[str]) -> tuple[str, ...]:
    kept = tuple(passages)
    if not kept:
        raise DataError(path, "there is no text")
    return kept
