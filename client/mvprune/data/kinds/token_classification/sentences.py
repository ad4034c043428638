"""Sentences whose words have tags, from CoNLL files (module `conll`), tables of lists and rows.

JSON lines and parquet files have a column of lists of words and one of lists of tags.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path

from mvprune.common.excerpts import listed, shown
from mvprune.data.columns import Columns, Found, check_late, find_column
from mvprune.data.kinds.base import Task
from mvprune.data.kinds.token_classification.tagschemes import OUTSIDE, scheme_notes
from mvprune.data.reading import Reading, alike, columns_read, name_of, notes_on_spelling, shared, spelled
from mvprune.data.tables import Table, is_writable
from mvprune.data.textfiles import DataError

MAX_TAGS = 1000
WORDS = ("tokens", "words")
TAGS = ("ner_tags", "tags", "labels", "ner")


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
class TokenClassificationData(Reading):
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
        read: the columns, in words.
        names: the names of the numbers, where the data set has them; `tags` then has no numbers.
        notes: on how they were read.
    """

    path: Path | str
    unit: str
    lines: list[int]
    words: list[list[str]]
    tags: list[Sequence[object]]
    read: str
    names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)

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
    numbers: dict[object, int] = {spelled(name): number for number, name in enumerate(names)}
    if train.names:
        numbers |= {number: number for number in range(len(names))}
    train_split, validation_split = (_number(split, numbers, names) for split in (train, validation))
    if len(set(chain.from_iterable(train_split.tags))) < 2:
        raise DataError(train.path, "the words must have at least two different tags, got one")
    notes = [*train.notes, *validation.notes, *scheme_notes(names), *alike(names)]
    if absent := set(chain.from_iterable(validation_split.tags)) - set(chain.from_iterable(train_split.tags)):
        unlearned = listed(names[number] for number in sorted(absent))
        notes.append(f"no word of {name_of(train.path)} has the tag {unlearned}: the model cannot learn it")
    notes += shared(*(map(tuple, split.words) for split in (train, validation)))
    columns = columns_read({train.path: train.read, validation.path: validation.read})
    return TokenClassificationData(
        task, names, train_split, validation_split, columns=columns, notes=tuple(dict.fromkeys(notes))
    )


def read_validation_tagged(task: Task, sentences: Sentences, labels: Sequence[str]) -> TokenClassificationData:
    """Sentences to evaluate a model on; there is nothing to train on.

    Args:
        task: the task.
        sentences: as they were read.
        labels: the model's tags in the order of their numbers.

    Raises:
        DataError: a tag is not among them.
    """
    numbers: dict[object, int] = {spelled(name): number for number, name in enumerate(labels)}
    split = _number(sentences, numbers, labels)
    columns, notes = columns_read({sentences.path: sentences.read}), tuple(sentences.notes)
    return TokenClassificationData(task, tuple(labels), TaggedSplit([], []), split, columns=columns, notes=notes)


def sentences_in_table(table: Table, columns: Columns) -> Sentences:
    """The sentences of a table with a column of lists of words and one of lists of tags. Raises DataError."""

    def choose(table: Table) -> tuple[str, str]:
        return find_column(table, "text", columns.text, WORDS), find_column(table, "label", columns.label, TAGS)

    chosen = choose(table)
    columns_found = Found(chosen[1], chosen[:1], guessed=None in (columns.text, columns.label))
    names = tuple(table.classes.get(chosen[1], ()))
    found = Sentences(table.path, table.unit, [], [], [], str(columns_found), names)
    written: set[str] = set()
    for line, cells in table.rows(chosen):
        if isinstance(cells, str):
            raise table.error(line, cells)
        words, tags = (_list(table, line, name, cell) for name, cell in zip(chosen, cells, strict=True))
        if len(words) != len(tags):
            message = f"each word must have one tag, got {len(words)} words and {len(tags)} tags"
            raise table.error(line, message)
        if not all(isinstance(word, str) and word and is_writable(word) for word in words):
            message = f"{shown(chosen[0])} must be words that are not empty, got {listed(map(shown, words))}"
            raise table.error(line, message)
        if words:
            found.lines.append(line)
            found.words.append([str(word) for word in words])
            found.tags.append([_tag(tag, names) for tag in tags])
            written.update(tag for tag in tags if isinstance(tag, str))
    found.notes.extend(notes_on_spelling(written, name_of(table.path), "tags"))
    check_late(table, chosen, choose)
    if not found.words:
        raise DataError(found.path, "the sentences must be at least 1, got 0")
    return found


def _tag(tag: object, names: Sequence[str]) -> object:
    """The name of a tag, where the table has one for its number; else the tag as it is."""
    if isinstance(tag, str):
        return spelled(tag)
    if isinstance(tag, int) and not isinstance(tag, bool) and 0 <= tag < len(names):
        return spelled(names[tag])
    return tag


def _list(table: Table, line: int, name: str, cell: object) -> list[object]:
    if not isinstance(cell, list):
        message = f"{shown(name)} must be a list with an entry for each word, got {shown(cell)}"
        raise table.error(line, message)
    return cell


def _discover(train: Sentences, validation: Sentences) -> tuple[str, ...]:
    names: dict[str, int] = {}
    for split in (train, validation):
        for index, tags in enumerate(split.tags):
            for tag in tags:
                if not (isinstance(tag, str) and tag.strip() and is_writable(tag)):
                    message = f"the tag must be a name, such as B-PER, I-PER and O, got {shown(tag)}"
                    raise split.error(index, message)
                names.setdefault(tag, index)
                if len(names) > MAX_TAGS:
                    raise split.error(index, f"there must be at most {MAX_TAGS:,} different tags, got more up to here")
    return tuple(sorted(names, key=lambda name: (name != OUTSIDE, name)))


def _number(split: Sentences, numbers: dict[object, int], names: Sequence[str]) -> TaggedSplit:
    tags: list[list[int]] = []
    for index, sentence in enumerate(split.tags):
        for tag in sentence:
            if not isinstance(tag, str | int) or tag not in numbers:
                raise split.error(index, f"the tag must be one of {listed(names)}, got {shown(tag)}")
        tags.append([numbers[tag] for tag in sentence])
    return TaggedSplit(split.words, tags)
