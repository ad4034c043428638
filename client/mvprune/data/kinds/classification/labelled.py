"""Texts with labels, from tables: columns found or named, labels checked and numbered."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from mvprune.common.excerpts import listed, shown
from mvprune.data.columns import Columns, Found, check_late, find_columns
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.kinds.classification.labels import BadLabel, Classes, Label, discovered, read_label
from mvprune.data.kinds.classification.weights import number_problems
from mvprune.data.reading import Reading, alike, columns_read, name_of, notes_on_spelling, shared, spelled
from mvprune.data.tables import Table, checked_text
from mvprune.data.textfiles import DataError

OF_SECOND = ("f1", "precision", "recall")
"""Metrics that are those of the second of two classes."""
OF_SCORES = ("roc_auc", "average_precision")
"""Metrics of the order that the scores give: they need examples of all classes."""
_TWO = 2
LARGEST_VALUE = 1e15  # labels of a regression: the squares of greater ones are soon too large for float32


@dataclass(frozen=True)
class Split:
    """Rows to train or to evaluate on: lists of one length.

    Attributes:
        texts: the texts, as they are in the data.
        pairs: the second texts, None for tasks over one text.
        labels: class numbers from 0, values (regression), or lists of class numbers (multi-label).
    """

    texts: list[str]
    pairs: list[str] | None
    labels: list[Any]

    def __len__(self) -> int:
        return len(self.texts)

    def fingerprint(self) -> str:
        """SHA-256 of the content, whatever file format and column names it came in."""
        digest = hashlib.sha256()
        for column in (self.texts, self.pairs, self.labels):
            digest.update(json.dumps(column, ensure_ascii=False, separators=(",", ":")).encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class ClassificationData(Reading):
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
    """Rows as they were read: labels are neither checked against the task nor numbered. `respelled` are the labels that
    were written in another way than they were read."""

    table: Table
    columns: Found
    texts: list[str]
    pairs: list[str] | None
    labels: list[Label]
    lines: list[int]
    respelled: frozenset[str]

    @property
    def classes(self) -> tuple[str, ...]:
        """The table's names for integers; () where it has none."""
        return tuple(self.table.classes.get(self.columns.label, ()))

    def error(self, index: int, message: str) -> DataError:
        return self.table.error(self.lines[index], message)


class _Texts(Kind[Table]):
    """The base of classification and regression: their files are tables with a label column."""

    head: ClassVar[str] = "SequenceClassification"
    pipeline: ClassVar[str] = "text-classification"
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")

    def read_table(self, table: Table, columns: Columns) -> Table:
        return table

    def has_pairs(self, data: ClassificationData) -> bool:
        return data.train.pairs is not None


class Classification(_Texts):
    """One of several classes.

    Labels may be integers from 0 or the task's label names. Where the task has none (text-classification), they are
    those that the training table knows, or else discovered in its rows: names, numbered in alphabetical order, or
    integers without a gap from 0 or 1. Columns that are not named are those of the training table, where the others
    have them too.
    """

    name: ClassVar[str] = "classification"
    metrics: ClassVar[tuple[str, ...]] = (
        "accuracy",
        "f1",
        "f1_macro",
        "f1_weighted",
        "balanced_accuracy",
        "matthews_correlation",
        "roc_auc",
        "average_precision",
    )
    # A constant answer has the recall 1, and one that knows only how often each class is has no calibration error.
    not_compared: ClassVar[frozenset[str]] = frozenset({"precision", "recall", "calibration_error"})
    options: ClassVar[frozenset[str]] = frozenset({"class_weights"})

    def option_problems(self, data: ClassificationData, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        metric, names = data.task.primary_metric, data.labels
        if metric in OF_SECOND and len(names) != _TWO:
            rule = "another metric where the classes are not two, since it is that of the second one"
            yield "metric", f"must be {rule}, got {metric} and {len(names)} classes; take f1_macro"
        absent = [name for number, name in enumerate(names) if number not in set(data.validation.labels)]
        if metric in OF_SCORES and absent:
            rule = f"another metric where the rows to evaluate on have not all classes, got {metric} without a row of"
            yield "metric", f"must be {rule} {listed(absent)}; take f1_macro, or add such rows"
        if weights := given.get("class_weights"):
            yield from (("class_weights", text) for text in number_problems(weights, names))

    def check_examples(self, task: Task, source: Table, columns: Columns) -> None:
        rows = _collect(task, source, columns, minimum=1, named=not task.labels)
        if task.labels:
            _numbered(rows, _classes(task, rows))

    def data(
        self, task: Task, train: Table, validation: Table, columns: Columns, more: Mapping[str, Table]
    ) -> ClassificationData:
        rows, others = _splits(task, train, {"": validation, **more}, columns, named=not task.labels)
        every = (rows, *others.values())
        classes = _classes(task, rows)
        notes = [note for one in every for note in _notes(one, classes)] + alike(classes.names)
        train_split = _numbered(rows, classes)
        evaluated = {ending: _numbered(other, classes) for ending, other in others.items()}
        _check_variety(train, train_split)
        if absent := [name for number, name in enumerate(classes.names) if number not in set(train_split.labels)]:
            notes.append(f"no row of {name_of(train.path)} has the label {listed(absent)}: the model cannot learn it")
        return _data(task, classes.names, every, train_split, evaluated, notes)

    def validation_data(
        self, task: Task, validation: Table, columns: Columns, labels: Sequence[str]
    ) -> ClassificationData:
        """Data to evaluate a model on.

        A label is one of the model's classes by its name, in any case where that is unambiguous; integers are the
        model's own numbers where its names are none.
        """
        rows = _collect(task, validation, columns, minimum=1, named=not task.labels)
        classes = _classes(task, rows) if task.labels else _classes_of_model(tuple(labels))
        return _validation_data(task, classes.names, rows, _numbered(rows, classes), tuple(_notes(rows, classes)))


class Regression(_Texts):
    """A number, which is finite."""

    name: ClassVar[str] = "regression"

    def check_examples(self, task: Task, source: Table, columns: Columns) -> None:
        _values(_collect(task, source, columns, minimum=1, named=False))

    def data(
        self, task: Task, train: Table, validation: Table, columns: Columns, more: Mapping[str, Table]
    ) -> ClassificationData:
        tables = {"": validation, **more}
        rows, others = _splits(task, train, tables, columns, named=False)
        train_split = _values(rows)
        evaluated = {ending: _values(other) for ending, other in others.items()}
        _check_variety(train, train_split)
        for ending, split in evaluated.items():
            _check_variety(tables[ending], split)  # a correlation with a constant is undefined
        return _data(task, (), (rows, *others.values()), train_split, evaluated, [])

    def validation_data(
        self, task: Task, validation: Table, columns: Columns, labels: Sequence[str]
    ) -> ClassificationData:
        rows = _collect(task, validation, columns, minimum=1, named=False)
        return _validation_data(task, (), rows, _values(rows))


def _splits(
    task: Task, train: Table, validation: Mapping[str, Table], columns: Columns, *, named: bool
) -> tuple[_Rows, dict[str, _Rows]]:
    """The rows to train on, and those to evaluate on by the ending of their metrics' names."""
    rows = _collect(task, train, columns, minimum=2, named=named)
    others = {}
    for ending, table in validation.items():
        others[ending] = other = _collect(task, table, columns, minimum=1, named=named, like=rows.columns)
        if (rows.pairs is None) != (other.pairs is None):
            one, two = (train, table) if rows.pairs is None else (table, train)
            raise DataError(
                one.path, f"the columns of text must be as many in each file, got one, and two in {two.path}; name them"
            )
    return rows, others


def _data(
    task: Task,
    names: tuple[str, ...],
    rows: Sequence[_Rows],
    train: Split,
    evaluated: dict[str, Split],
    notes: Sequence[str],
) -> ClassificationData:
    also = shared(*(zip(one.texts, one.pairs or one.texts, strict=True) for one in rows[:2]))
    return ClassificationData(
        task,
        names,
        train,
        evaluated.pop(""),
        evaluated,
        columns=columns_read({one.table.path: one.columns for one in rows}),
        notes=tuple(dict.fromkeys([*notes, *also])),
    )


def _validation_data(
    task: Task, names: tuple[str, ...], rows: _Rows, split: Split, notes: tuple[str, ...] = ()
) -> ClassificationData:
    read = columns_read({rows.table.path: rows.columns})
    return ClassificationData(task, names, Split([], None, []), split, columns=read, notes=notes)


def _classes(task: Task, train: _Rows) -> Classes:
    """The task's classes, or those that the training table has."""
    if names := task.labels or train.classes:
        numbers = {number: number for number in range(len(names))}
        return Classes(names, numbers, f"{listed(names)}, or 0 to {len(names) - 1}", bool(task.labels))
    first: dict[Label, int] = {}
    for label, line in zip(train.labels, train.lines, strict=True):
        first.setdefault(label, line)
    try:
        found = discovered(first)
    except BadLabel as error:
        raise train.error(train.labels.index(error.label), str(error)) from None
    names = tuple(name for name, _ in found)
    numbers = {integer: number for number, (_, integer) in enumerate(found) if integer is not None}
    return Classes(names, numbers, f"{listed(names)} (the labels of {train.table.path})", bool(numbers))


def _classes_of_model(names: tuple[str, ...]) -> Classes:
    are_numbers = any(name.isdecimal() for name in names)
    of_names = {int(name): number for number, name in enumerate(names) if name.isdecimal()}
    numbers = of_names if are_numbers else {number: number for number in range(len(names))}
    return Classes(names, numbers, f"{listed(names)} (the labels of the model)", by_number=are_numbers, folded=True)


def _notes(rows: _Rows, classes: Classes) -> list[str]:
    """Which labels are not read as they are written."""
    notes, name = [], name_of(rows.table.path)
    if rows.classes and not classes.meant_by(rows.classes):
        own = f"the classes {listed(classes.names)}"
        notes.append(f"the integers of {name} are read as the numbers of {own}, not as its {listed(rows.classes)}")
    notes += notes_on_spelling(rows.respelled, name)
    if others := sorted({label for label in rows.labels if isinstance(label, str)} - {*map(spelled, classes.names)}):
        meant = dict.fromkeys(classes.names[number] for one in others if (number := classes.named(one)) is not None)
        notes.append(f"the labels {listed(others)} of {name} are read as {listed(meant)}")
    return notes


def _collect(
    task: Task, table: Table, wanted: Columns, *, minimum: int, named: bool, like: Found | None = None
) -> _Rows:
    """The rows of a table, at least `minimum`; `named`: see `read_label`."""
    columns = find_columns(task, table, wanted, like)
    read: list[tuple[int, Label, list[str]]] = []
    respelled: set[str] = set()
    broken: list[DataError] = []
    for line, cells in table.rows(columns.names):
        try:
            if isinstance(cells, str):
                raise table.error(line, cells)
            label = read_label(table, line, columns.label, cells[0], named=named)
            texts = [checked_text(table, line, name, cell) for name, cell in zip(columns.texts, cells[1:], strict=True)]
        except DataError as error:
            if not task.has_broken_rows:
                raise
            broken.append(error)
            continue
        read.append((line, label, texts))
        if isinstance(cells[0], str) and spelled(written := cells[0].strip()) != written:
            respelled.add(written)
    check_late(table, columns.names, lambda whole: find_columns(task, whole, wanted, like).names)
    if len(broken) > len(read) // 1000:
        raise broken[0]
    if len(read) < minimum:
        raise DataError(table.path, f"the rows must be at least {minimum}, got {len(read)}")
    lines, labels, texts_read = (list(column) for column in zip(*read, strict=True))
    texts, *pairs = (list(column) for column in zip(*texts_read, strict=True))
    return _Rows(table, columns, texts, pairs[0] if pairs else None, labels, lines, frozenset(respelled))


def _numbered(rows: _Rows, classes: Classes) -> Split:
    """The rows with their labels numbered."""
    names = classes.meant_by(rows.classes)
    numbers = {label: classes.number(label, names) for label in set(rows.labels)}
    labels: list[int] = []
    for index, label in enumerate(rows.labels):
        number = numbers[label]
        if number is None:
            name = f" ({names[label]})" if isinstance(label, int) and 0 <= label < len(names) else ""
            raise rows.error(index, f"the label must be one of {classes.allowed}, got {shown(label)}{name}")
        labels.append(number)
    return Split(rows.texts, rows.pairs, labels)


def _values(rows: _Rows) -> Split:
    """The rows with their labels as numbers (regression)."""
    labels: list[float] = []
    for index, label in enumerate(rows.labels):
        try:
            value = math.nan if "_" in str(label) else float(label)  # Python reads 1_0 as 10
        except (ValueError, OverflowError):
            value = math.nan
        if not abs(value) <= LARGEST_VALUE:
            raise rows.error(
                index, f"the label must be a number from {-LARGEST_VALUE:g} to {LARGEST_VALUE:g}, got {shown(label)}"
            )
        labels.append(value)
    return Split(rows.texts, rows.pairs, labels)


def _check_variety(table: Table, split: Split) -> None:
    if len(set(split.labels)) < 2:
        message = f"the rows must have at least two different labels, got one in all {len(split):,}"
        raise DataError(table.path, message)
