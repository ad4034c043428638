"""Plain texts to model a language on: from lines of text files, a column of a table or rows."""

from __future__ import annotations

import hashlib
import json
from abc import ABC
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from mvprune.common.excerpts import shown
from mvprune.data.columns import Columns, Found, check_late, find_column
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.reading import Reading, columns_read
from mvprune.data.tables import Table, checked_text
from mvprune.data.textfiles import DataError, read_lines

TEXTS = ("text", "passage", "content", "document", "body", "sentence", "abstract")


@dataclass(frozen=True)
class PassageData(Reading):
    """A task's texts, none blank.

    Attributes:
        task: the task.
        train: texts to train on, in their order.
        validation: texts to evaluate on.
        train_answers: where the texts are prompts, what is to follow each of them; () where they are not.
        validation_answers: the same of the texts to evaluate on.
    """

    task: Task
    train: tuple[str, ...]
    validation: tuple[str, ...]
    train_answers: tuple[str, ...] = ()
    validation_answers: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of both splits."""
        digest = hashlib.sha256()
        answers = (self.train_answers, self.validation_answers) if self.validation_answers else ()
        for split in (self.train, self.validation, *answers):
            digest.update(json.dumps(split, ensure_ascii=False, separators=(",", ":")).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Passages:
    """Texts as they were read, at least one.

    Attributes:
        path: the file, or the name of the data set.
        texts: none of them blank.
        read: the column, in words; "" where there are none.
        answers: where the texts are prompts, what is to follow each of them.
    """

    path: Path | str
    texts: tuple[str, ...]
    read: str = ""
    answers: tuple[str, ...] = ()


class OfPassages(Kind[Passages], ABC):
    """A kind whose data is plain texts. Files are lines of text or tables with a column of texts."""

    columns: ClassVar[tuple[str, ...]] = ("text",)
    rows_are_examples: ClassVar[bool] = False
    predicts_tokens: ClassVar[bool] = True
    losses: ClassVar[frozenset[str]] = frozenset({"perplexity"})

    def read_other(self, path: Path, columns: Columns) -> Passages:
        """The lines of a text file that are not blank."""
        if columns != Columns():
            raise DataError(path, f"text_column must not be given for a text file, got {shown(columns.text)}")
        return _some(path, (text for _, line in read_lines(path) if (text := line.strip())))

    def read_table(self, table: Table, columns: Columns) -> Passages:
        """The texts in one column of a table; blank ones are skipped."""

        def choose(table: Table) -> tuple[str]:
            return (find_column(table, "text", columns.text, TEXTS),)

        def texts() -> Iterator[str]:
            for line, cells in table.rows(chosen):
                if isinstance(cells, str):
                    raise table.error(line, cells)
                if isinstance(cells[0], str) and not cells[0].strip():
                    continue
                yield checked_text(table, line, chosen[0], cells[0]).strip()

        chosen = choose(table)
        found = _some(table.path, texts(), str(Found("", chosen, guessed=columns.text is None)))
        check_late(table, chosen, choose)
        return found

    def data(
        self, task: Task, train: Passages, validation: Passages, columns: Columns, more: Mapping[str, Passages]
    ) -> PassageData:
        read = columns_read({split.path: split.read for split in (train, validation)})
        return PassageData(task, train.texts, validation.texts, columns=read)

    def validation_data(self, task: Task, validation: Passages, columns: Columns, labels: Sequence[str]) -> PassageData:
        read = columns_read({validation.path: validation.read})
        return PassageData(task, (), validation.texts, columns=read)


def _some(path: Path | str, texts: Iterator[str], read: str = "") -> Passages:
    kept = tuple(texts)
    if not kept:
        raise DataError(path, "the texts must be at least 1, got 0")
    return Passages(path, kept, read)
