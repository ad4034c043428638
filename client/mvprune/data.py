"""Labelled text for a task, from files or rows: columns found or named, labels checked and numbered."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mvprune.columns import FOUND_BY_NAME, Columns, find_columns
from mvprune.tables import DataError, Table, listed, read_table, shown, table_of_rows
from mvprune.tasks import Task, TaskKind

__all__ = ["ClassificationData", "Columns", "DataError", "Split", "find_task_files", "load_files", "load_rows"]

MAX_CLASSES = 1000

# 18 digits fit 64 bits; "1.0" is how a column of integers with holes is written by pandas.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.0+)?", re.ASCII)

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
    """

    task: Task
    labels: tuple[str, ...]
    train: Split
    validation: Split

    @property
    def fingerprint(self) -> str:
        """SHA-256 of label names and both splits."""
        content = [self.labels, self.train.fingerprint(), self.validation.fingerprint()]
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


def load_files(task: Task, train: Path, validation: Path, columns: Columns = FOUND_BY_NAME) -> ClassificationData:
    """Reads a task's data from two files (formats by suffix: see `mvprune.tables`).

    Labels may be integers from 0 or the task's label names. Where the task has none (text-classification), they are
    discovered in the training rows: names, numbered in alphabetical order, or integers without a gap from 0 or 1.
    Regression takes finite numbers.

    Raises:
        DataError: what is wrong, in which file and line, and what is allowed.
    """
    _check_kind(task, train)
    train_table, validation_table = (read_table(path, task.implied_header) for path in (train, validation))
    return _build(task, train_table, validation_table, columns, ())


def load_rows(
    task: Task,
    train: Iterable[Mapping[str, object]],
    validation: Iterable[Mapping[str, object]],
    columns: Columns = FOUND_BY_NAME,
    *,
    name: str,
    labels: Sequence[str] = (),
) -> ClassificationData:
    """The same from rows in memory, such as the splits of a data set of the hub.

    Args:
        task: the task.
        train: rows, as mappings with the same keys.
        validation: likewise.
        columns: names of columns; None: found by name.
        name: the data set's name, for errors.
        labels: label names in the order of their numbers where the data set knows them; the task's own come first.

    Raises:
        DataError: what is wrong, in which split and row, and what is allowed.
    """
    _check_kind(task, name)
    train_table = table_of_rows(f"{name} (train)", train)
    validation_table = table_of_rows(f"{name} (validation)", validation)
    return _build(task, train_table, validation_table, columns, tuple(labels))


def find_task_files(task: Task, root: Path) -> tuple[Path, Path] | None:
    """The train and validation files of a task in GLUE's own layout under `root`; None if they are not there."""
    if task.folder is None:
        return None
    train, validation = root / task.folder / "train.tsv", root / task.folder / task.validation_file
    return (train, validation) if train.is_file() and validation.is_file() else None


def _check_kind(task: Task, path: Path | str) -> None:
    if task.kind is TaskKind.QUESTION_ANSWERING:
        message = f"the task {task.name} reads no tables of texts and labels; GLUE tasks and text-classification do"
        raise DataError(path, message)


def _build(task: Task, train: Table, validation: Table, columns: Columns, known: tuple[str, ...]) -> ClassificationData:
    train_rows = _collect(task, train, find_columns(task, train, columns), minimum=2)
    validation_rows = _collect(task, validation, find_columns(task, validation, columns), minimum=1)
    if (train_rows.pairs is None) != (validation_rows.pairs is None):
        one, two = (train, validation) if train_rows.pairs is None else (validation, train)
        raise DataError(one.path, f"one column of text was found, but two in {two.path}; name the columns")
    names, encode = _encoding(task, train_rows, known)
    data = ClassificationData(task, names, encode(train_rows), encode(validation_rows))
    _check_variety(train, data.train)
    if task.kind is TaskKind.REGRESSION:
        _check_variety(validation, data.validation)  # a correlation with a constant is undefined
    return data


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
            texts = [_text(table, line, name, cell) for name, cell in zip(text_columns, cells[1:], strict=True)]
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
    text = _text(table, line, column, value).strip()
    return int(text.partition(".")[0]) if _INTEGER.fullmatch(text) else text


def _text(table: Table, line: int, column: str, value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value and (value.isascii() or _is_unicode(value)):
        return value
    if value is None:
        found = "missing"
    elif not isinstance(value, str):
        found = f"{shown(value)}, which is not text"
    elif not value.strip():
        found = "empty"
    else:
        found = f"{shown(value)}, which holds a NUL character or half a surrogate pair"
    raise DataError(table.path, f"{shown(column)} is {found}", line=line, unit=table.unit)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
            raise rows.error(index, f"the label is {label}; integers or names are allowed")
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
    """The rows with their labels as finite numbers (regression)."""
    labels: list[float] = []
    for index, label in enumerate(rows.labels):
        try:
            value = float(label)
        except (ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            raise rows.error(index, f"the label is {shown(label)}; a finite number is allowed")
        labels.append(value)
    return Split(rows.texts, rows.pairs, labels)


def _check_variety(table: Table, split: Split) -> None:
    if len(set(split.labels)) < 2:
        message = f"all {len(split):,} rows have the same label; at least two different ones are needed"
        raise DataError(table.path, message)
