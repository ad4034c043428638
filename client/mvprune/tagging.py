"""Sentences whose words have tags: CoNLL files, tables of lists, rows.

A CoNLL file has one word a line, its tag in the last column, and a blank line after each sentence (Tjong Kim Sang and
De Meulder 2003, https://arxiv.org/abs/cs/0306050); lines of -DOCSTART- are passed over. Columns are parted by tabs
where there are any, else by blanks. JSON lines and parquet files have a column of lists of words and one of lists of
tags.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

from mvprune.columns import Columns, find_column
from mvprune.excerpts import listed, shown
from mvprune.tables import DataError, Table, is_writable, read_lines, read_table
from mvprune.tasks import Task

MAX_TAGS = 1000
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "ner")
_OF_LISTS = (".jsonl", ".ndjson", ".json", ".parquet")
_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedSplit:
    """Sentences to train or to evaluate on: lists of one length.

    Attributes:
        words: the words of each sentence, at least one.
        tags: the number of each word's tag.
    """

    words: list[list[str]]
    tags: list[list[int]]

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class TokenClassificationData:
    """A task's sentences, checked: one tag for each word, at least two different ones.

    Attributes:
        task: the task.
        labels: names of the tags in the order of their numbers.
        train: sentences to train on.
        validation: sentences to evaluate on.
    """

    task: Task
    labels: tuple[str, ...]
    train: TaggedSplit
    validation: TaggedSplit

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of names and both splits."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        for split in (self.train, self.validation):
            for sentence in zip(split.words, split.tags, strict=True):
                digest.update(json.dumps(sentence, separators=(",", ":")).encode())
            digest.update(b"\n")
        return digest.hexdigest()


@dataclass(frozen=True)
class Sentences:
    """Sentences as they were read.

    Attributes:
        path: the file, or the name of the data set.
        unit: what `lines` counts, "line" or "row".
        lines: where each sentence begins.
        words: its words.
        tags: a name for each word, or a number.
        names: what the numbers stand for, where the data set knows it.
    """

    path: Path | str
    unit: str
    lines: list[int]
    words: list[list[str]]
    tags: list[Sequence[object]]
    names: tuple[str, ...] = ()

    def error(self, index: int, message: str) -> DataError:
        """The DataError over one of the sentences."""
        return DataError(self.path, message, line=self.lines[index], unit=self.unit)


def read_tagged(task: Task, train: Sentences, validation: Sentences) -> TokenClassificationData:
    """The data of a task, checked, its tags numbered.

    Tags are names; numbers where the training data knows their names. Names that it does not know are numbered in
    alphabetical order, O first.

    Raises:
        DataError: what is wrong, in which split and sentence.
    """
    names = train.names or _discover(train, validation)
    numbers: dict[object, int] = {name: number for number, name in enumerate(names)}
    if train.names:
        numbers |= {number: number for number in range(len(names))}
    train_split, validation_split = (_number(split, numbers, names) for split in (train, validation))
    if len(set(chain.from_iterable(train_split.tags))) < 2:
        raise DataError(train.path, "all words have the same tag; at least two different ones are needed")
    return TokenClassificationData(task, names, train_split, validation_split)


def read_validation_tagged(task: Task, sentences: Sentences, labels: Sequence[str]) -> TokenClassificationData:
    """Sentences to evaluate a model on; there is nothing to train on.

    Args:
        task: the task.
        sentences: as they were read.
        labels: the model's tags in the order of their numbers.

    Raises:
        DataError: a tag is not among them.
    """
    numbers: dict[object, int] = {name: number for number, name in enumerate(labels)}
    return TokenClassificationData(task, tuple(labels), TaggedSplit([], []), _number(sentences, numbers, labels))


def sentences_in_file(path: Path, columns: Columns) -> Sentences:
    """The sentences of a CoNLL file, or of a table of lists by its suffix. Raises DataError."""
    if path.suffix.lower() in _OF_LISTS:
        return sentences_in_table(read_table(path), columns)
    if columns != Columns():
        raise DataError(path, "the columns of a CoNLL file have no names; leave the names of columns out")
    found = Sentences(path, "line", [], [], [])
    words: list[str] = []
    tags: list[str] = []
    for line, text in chain(read_lines(path), [(0, "")]):
        # Blanks other than the usual one may be part of a word, as in a number of many digits.
        cells = [cell.strip(" ") for cell in re.split("\t" if "\t" in text else " +", text.strip(" \r\n"))]
        if not text.strip():
            if words:
                found.words.append(words)
                found.tags.append(tags)
            words, tags = [], []
        elif cells[0] != _DOCUMENT:
            if len(cells) < 2 or not cells[0] or not cells[-1]:
                message = f"a word in the first column and its tag in the last are needed; found {shown(text)}"
                raise DataError(path, message, line=line)
            if not words:
                found.lines.append(line)
            words.append(cells[0])
            tags.append(cells[-1])
    return _some(found)


def sentences_in_table(table: Table, columns: Columns) -> Sentences:
    """The sentences of a table with a column of lists of words and one of lists of tags. Raises DataError."""
    names = find_column(table, "text", columns.text, WORDS), find_column(table, "label", columns.label, TAGS)
    found = Sentences(table.path, table.unit, [], [], [], tuple(table.classes.get(names[1], ())))
    for line, cells in table.rows(names):
        if isinstance(cells, str):
            raise DataError(table.path, cells, line=line, unit=table.unit)
        words, tags = (_list(table, line, name, cell) for name, cell in zip(names, cells, strict=True))
        if len(words) != len(tags):
            message = f"there are {len(words)} words and {len(tags)} tags; one tag for each word is allowed"
            raise DataError(table.path, message, line=line, unit=table.unit)
        if not all(isinstance(word, str) and word and is_writable(word) for word in words):
            raise DataError(
                table.path, f"{shown(names[0])} has a word that is empty or not text", line=line, unit=table.unit
            )
        if words:
            found.lines.append(line)
            found.words.append([str(word) for word in words])
            found.tags.append(tags)
    return _some(found)


def _list(table: Table, line: int, name: str, cell: object) -> list[object]:
    if not isinstance(cell, list):
        message = f"{shown(name)} is {shown(cell)}; a list with an entry for each word is allowed"
        raise DataError(table.path, message, line=line, unit=table.unit)
    return cell


def _some(found: Sentences) -> Sentences:
    if not found.words:
        raise DataError(found.path, "there are no sentences")
    return found


def _discover(train: Sentences, validation: Sentences) -> tuple[str, ...]:
    names: dict[str, int] = {}
    for split in (train, validation):
        for index, tags in enumerate(split.tags):
            for tag in tags:
                if not (isinstance(tag, str) and tag.strip() and is_writable(tag)):
                    message = f"the tag is {shown(tag)}; names are allowed, such as B-PER, I-PER and O"
                    raise split.error(index, message)
                names.setdefault(tag, index)
                if len(names) > MAX_TAGS:
                    raise split.error(index, f"there are more than {MAX_TAGS:,} different tags up to here")
    return tuple(sorted(names, key=lambda name: (name != "O", name)))


def _number(split: Sentences, numbers: dict[object, int], names: Sequence[str]) -> TaggedSplit:
    tags: list[list[int]] = []
    for index, sentence in enumerate(split.tags):
        for tag in sentence:
            if not isinstance(tag, str | int) or tag not in numbers:
                raise split.error(index, f"the tag {shown(tag)} is not known; allowed: {listed(names)}")
        tags.append([numbers[tag] for tag in sentence])
    return TaggedSplit(split.words, tags)
