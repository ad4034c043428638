"""Texts with labels, from tables: columns found or named, labels checked and numbered."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType

from mvprune.columns import Columns, find_columns
from mvprune.excerpts import listed, shown
from mvprune.tables import DataError, Table, checked_text
from mvprune.tasks import Task, TaskKind, plain_label

MAX_CLASSES = 1000
LARGEST_VALUE = 1e15  # of a regression's labels: the squares of greater ones are soon too large for float32

# 18 digits fit 64 bits; "1.0" is how a column of integers with holes is written by pandas.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.0+)?", re.ASCII)
# "3.80" is the number 3.8 in csv as it is in JSON, not a class of that name.
_DECIMAL = re.compile(r"-?[0-9]{0,17}\.[0-9]+", re.ASCII)

# A label as it was read: a number where it is one, the stripped text otherwise.
_Label = int | float | str


@dataclass(frozen=True)
class Split:
    """Rows to train or to evaluate on: lists of one length.

    Attributes:
        texts: the texts, as they are in the data.
        pairs: the second texts, None for tasks over one text.
        labels: class numbers from 0, or values (regression).
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[int] | list[float]

    def __len__(self) -> int:
        return len(self.texts)

    def fingerprint(self) -> str:
        """SHA-256 of the content, whatever file format and column names it came in."""
        digest = hashlib.sha256()
        for column in (self.texts, self.pairs, self.labels):
            digest.update(json.dumps(column, ensure_ascii=False, separators=(",", ":")).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class ClassificationData:
    """A task's data, checked: at least two rows and two different labels to train on.

    Attributes:
        task: the task.
        labels: label names in the order of their numbers; empty for regression.
        train: rows to train on.
        validation: rows to evaluate on, at least one.
        more_validation: further rows to evaluate on, by the ending of their metrics' names (mismatched).
    """

    task: Task
    labels: tuple[str, ...]
    train: Split
    validation: Split
    more_validation: Mapping[str, Split] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of label names and all splits."""
        content: list[object] = [self.labels, self.train.fingerprint(), self.validation.fingerprint()]
        content += [(name, split.fingerprint()) for name, split in self.more_validation.items()]
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class _Rows:
    """Rows as they were read: labels are neither checked against the task nor numbered."""

    table: Table
    texts: list[str]
    pairs: list[str] | None
    labels: list[_Label]
    lines: list[int]

    def error(self, index: int, message: str) -> DataError:
        return DataError(self.table.path, message, line=self.lines[index], unit=self.table.unit)


def read_labelled(
    task: Task,
    train: Table,
    validation: Table,
    columns: Columns,
    more_validation: Mapping[str, Table] = MappingProxyType({}),
) -> ClassificationData:
    """Texts with labels (classification) or values (regression).

    Labels may be integers from 0 or the task's label names. Where the task has none (text-classification), they are
    those that the training table knows, or else discovered in its rows: names, numbered in alphabetical order, or
    integers without a gap from 0 or 1. Regression takes finite numbers.

    Raises:
        DataError: what is wrong, in which table and line, and what is allowed.
    """
    found = find_columns(task, train, columns)
    train_rows = _collect(task, train, found, minimum=2)
    names, encode = _encoding(task, train_rows, tuple(train.classes.get(found[0], ())))
    splits = {"": validation, **more_validation}
    evaluated = {name: _validation(task, train_rows, table, columns, encode) for name, table in splits.items()}
    data = ClassificationData(task, names, encode(train_rows), evaluated.pop(""), evaluated)
    _check_variety(train, data.train)
    return data


def read_labelled_validation(task: Task, table: Table, columns: Columns, labels: Sequence[str]) -> ClassificationData:
    """Texts with labels or values to evaluate a model on; there is nothing to train on.

    Args:
        task: the task.
        table: the texts.
        columns: names of columns; None: found by name.
        labels: the model's classes in the order of their numbers, where the task's are discovered in the data.

    Raises:
        DataError: what is wrong, in which line, and what is allowed.
    """
    rows = _collect(task, table, find_columns(task, table, columns), minimum=1)
    if task.kind is TaskKind.REGRESSION or task.labels:
        names, encode = _encoding(task, rows, ())
        split = encode(rows)
    else:
        names = tuple(labels)
        split = _number(rows, _known_numbers(rows, names), f"{listed(names)} (the labels of the model)")
    return ClassificationData(task, names, Split([], None, []), split)


def _known_numbers(rows: _Rows, names: tuple[str, ...]) -> dict[_Label, int]:
    """Numbers for the labels of the rows that a model knows: by name, in any case; integers are the model's own numbers
    where its names are none."""
    spelled = {plain_label(name): number for number, name in enumerate(names)}
    if not any(name.isdecimal() for name in names):
        spelled |= {str(number): number for number in range(len(names))}
    labels = {label: spelled.get(plain_label(str(label))) for label in set(rows.labels)}
    return {label: number for label, number in labels.items() if number is not None}


def _validation(task: Task, train: _Rows, table: Table, columns: Columns, encode: Callable[[_Rows], Split]) -> Split:
    rows = _collect(task, table, find_columns(task, table, columns), minimum=1)
    if (train.pairs is None) != (rows.pairs is None):
        one, two = (train.table, table) if train.pairs is None else (table, train.table)
        raise DataError(one.path, f"one column of text was found, but two in {two.path}; name the columns")
    split = encode(rows)
    if task.kind is TaskKind.REGRESSION:
        _check_variety(table, split)  # a correlation with a constant is undefined
    return split


def _encoding(task: Task, train: _Rows, known: tuple[str, ...]) -> tuple[tuple[str, ...], Callable[[_Rows], Split]]:
    """The names of the labels, and what turns rows as read into a split."""
    if task.kind is TaskKind.REGRESSION:
        return (), _values
    if names := task.labels or known:
        numbers: dict[_Label, int] = {name: number for number, name in enumerate(names)}
        numbers |= {number: number for number in range(len(names))}
        return names, partial(_number, numbers=numbers, allowed=f"0 to {len(names) - 1}, or {listed(names)}")
    numbers = _discover(train)
    names = tuple(str(label) for label in numbers)
    return names, partial(_number, numbers=numbers, allowed=f"{listed(names)} (the labels of {train.table.path})")


def _collect(task: Task, table: Table, columns: tuple[str, list[str]], *, minimum: int) -> _Rows:
    label_column, text_columns = columns
    rows = _Rows(table, [], [] if len(text_columns) == 2 else None, [], [])
    broken: list[DataError] = []
    for line, cells in table.rows([label_column, *text_columns]):
        try:
            if isinstance(cells, str):
                raise DataError(table.path, cells, line=line, unit=table.unit)
            label = _label(table, line, label_column, cells[0])
            texts = [checked_text(table, line, name, cell) for name, cell in zip(text_columns, cells[1:], strict=True)]
        except DataError as error:
            if not task.has_broken_rows:
                raise
            broken.append(error)
            continue
        rows.texts.append(texts[0])
        if rows.pairs is not None:
            rows.pairs.append(texts[1])
        rows.labels.append(label)
        rows.lines.append(line)
    if len(broken) > len(rows.texts) // 1000:
        raise broken[0]
    if len(rows.texts) < minimum:
        found = "only one row" if rows.texts else "no row"
        raise DataError(table.path, f"there is {found}; at least {minimum} must be there")
    return rows


def _label(table: Table, line: int, column: str, value: object) -> _Label:
    """A label as a number where it is one: "1", 1.0 and true are the integer 1."""
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, int | float):
        return value
    text = checked_text(table, line, column, value).strip()
    if _INTEGER.fullmatch(text):
        return int(text.partition(".")[0])
    return float(text) if _DECIMAL.fullmatch(text) else text


def _discover(rows: _Rows) -> dict[_Label, int]:
    """Numbers for the labels of the training rows: names in alphabetical order, or integers as they are (from 0)."""
    first: dict[_Label, int] = {}
    for index, label in enumerate(rows.labels):
        first.setdefault(label, index)
    if len(first) > MAX_CLASSES:
        message = f"there are {len(first):,} different labels; at most {MAX_CLASSES:,} are allowed"
        raise rows.error(list(first.values())[MAX_CLASSES], message)
    names = sorted(label for label in first if isinstance(label, str))
    integers = sorted(label for label in first if isinstance(label, int))
    for label, index in first.items():
        if isinstance(label, float):
            message = f"the label is {label}; integers or names are allowed, and numbers by the task text-regression"
            raise rows.error(index, message)
        if names and integers and type(label) is not type(rows.labels[0]):
            message = f"the label is {shown(label)}, but {shown(rows.labels[0])} in line {rows.lines[0]}"
            raise rows.error(index, f"{message}; all integers or all names are allowed")
    start = 1 if integers and integers[0] > 0 else 0
    for expected, number in enumerate(integers, start):
        if number != expected:
            message = f"the label {shown(number)} is out of range"
            raise rows.error(first[number], f"{message}; integers must run from 0 or 1 without a gap")
    ordered: list[_Label] = [*integers, *names]
    return {label: number for number, label in enumerate(ordered)}


def _number(rows: _Rows, numbers: Mapping[_Label, int], allowed: str) -> Split:
    """The rows with their labels numbered."""
    labels: list[int] = []
    for index, label in enumerate(rows.labels):
        number = numbers.get(label)
        if number is None:
            found = "out of range" if isinstance(label, int) else "not known"
            raise rows.error(index, f"the label {shown(label)} is {found}; allowed: {allowed}")
        labels.append(number)
    return Split(rows.texts, rows.pairs, labels)


def _values(rows: _Rows) -> Split:
    """The rows with their labels as numbers (regression)."""
    labels: list[float] = []
    for index, label in enumerate(rows.labels):
        try:
            value = float(label)
        except (ValueError, OverflowError):
            value = math.nan
        if not abs(value) <= LARGEST_VALUE:
            raise rows.error(
                index, f"the label is {shown(label)}; a number from {-LARGEST_VALUE:g} to {LARGEST_VALUE:g} is allowed"
            )
        labels.append(value)
    return Split(rows.texts, rows.pairs, labels)


def _check_variety(table: Table, split: Split) -> None:
    if len(set(split.labels)) < 2:
        message = f"all {len(split):,} rows have the same label; at least two different ones are needed"
        raise DataError(table.path, message)
