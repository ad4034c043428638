"""Multi-label classification: one text or two, and those of several labels that belong to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

from mvprune.common.excerpts import listed, shown
from mvprune.data.columns import Columns, NamedColumnMissing, check_late, find_named, find_texts
from mvprune.data.kinds.base import Kind, Task
from mvprune.data.kinds.classification.labelled import OF_SCORES, ClassificationData, Split
from mvprune.data.kinds.classification.labels import MAX_CLASSES, Classes
from mvprune.data.kinds.classification.weights import number_problems
from mvprune.data.reading import alike, columns_read, name_of, notes_on_spelling, shared, spelled
from mvprune.data.tables import Table, checked_text, is_writable
from mvprune.data.textfiles import DataError

SEPARATORS = ("|", ";", ",")
"""Between the labels of a cell of text: the first of these that the training file has."""

_LISTS = ("labels", "label", "tags", "categories", "topics", "genres", "emotions")  # names of columns of lists
_LOOKED_AT = 1000  # rows, by which columns of 0 and 1 are found
_TRUTHS: Mapping[object, bool] = {0: False, 1: True, "0": False, "1": True, "false": False, "true": True}
_TWO = 2


@dataclass(frozen=True)
class _Layout:
    """The columns that are read.

    Attributes:
        texts: one or two.
        labels: one column of lists, or a column of 0 and 1 for each label.
        is_binary: which of both.
        guessed: whether some were found by name or by their content.
        separator: of labels in a cell of text; "": no cell needs one.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    is_binary: bool
    guessed: bool
    separator: str = ""

    def __str__(self) -> str:
        texts = ", ".join(
            f"{role} {shown(name)}" for role, name in zip(("text", "second text"), self.texts, strict=False)
        )
        role = "labels of 0 and 1" if self.is_binary else "labels"
        between = f", separated by {self.separator!r}" if self.separator else ""
        return f"{texts}, {role} {listed(self.labels)}{between}" + " (found by name)" * self.guessed


@dataclass(frozen=True)
class _Rows:
    """The rows of a table: `labels` are names, each once; those of `respelled` were written in another way."""

    table: Table
    layout: _Layout
    lines: list[int]
    texts: list[list[str]]
    labels: list[list[str]]
    respelled: frozenset[str]


class MultiLabel(Kind[Table]):
    """Any number of labels for a text.

    Their column holds lists, lists in JSON, or text with separators; or each label has a column of 0 and 1. The labels
    are those of the training table. A row may have none.
    """

    name: ClassVar[str] = "multi-label"
    head: ClassVar[str] = "SequenceClassification"
    pipeline: ClassVar[str] = "text-classification"
    columns: ClassVar[tuple[str, ...]] = ("text", "text_pair", "label")
    metrics: ClassVar[tuple[str, ...]] = ("f1_micro", "f1_macro", "subset_accuracy", "roc_auc", "average_precision")
    options: ClassVar[frozenset[str]] = frozenset({"class_weights", "threshold"})

    def read_table(self, table: Table, columns: Columns) -> Table:
        return table

    def has_pairs(self, data: ClassificationData) -> bool:
        return data.train.pairs is not None

    def check_examples(self, task: Task, source: Table, columns: Columns) -> None:
        _read(task, source, columns)

    def data(
        self, task: Task, train: Table, validation: Table, columns: Columns, more: Mapping[str, Table]
    ) -> ClassificationData:
        rows = _read(task, train, columns, minimum=2)
        names = _names(rows)
        other = _read(task, validation, columns, like=rows.layout)
        if not any(other.labels):
            rule = "some row to evaluate on must have a label, got none"
            raise DataError(validation.path, f"{rule} in {len(other.labels):,} rows")
        if len(rows.layout.texts) != len(other.layout.texts):
            counts = (len(rows.layout.texts), len(other.layout.texts))
            raise DataError(
                train.path, f"the columns of text must be as many in each file, got {counts[0]} and {counts[1]}"
            )
        classes = _classes(names, name_of(train.path))
        notes = [note for one in (rows, other) for note in notes_on_spelling(one.respelled, name_of(one.table.path))]
        every_row = [name for name in names if sum(name in row for row in rows.labels) == len(rows.labels)]
        if every_row:
            notes.append(
                f"every row of {name_of(train.path)} has the label {listed(every_row)}: nothing is learned of it"
            )
        notes += alike(names)
        notes += shared(*([tuple(texts) for texts in one.texts] for one in (rows, other)))
        read = columns_read({one.table.path: one.layout for one in (rows, other)})
        train_split, split = (_numbered(one, classes) for one in (rows, other))
        return ClassificationData(task, names, train_split, split, columns=read, notes=tuple(dict.fromkeys(notes)))

    def validation_data(
        self, task: Task, validation: Table, columns: Columns, labels: Sequence[str]
    ) -> ClassificationData:
        names = tuple(labels)
        like = _Layout((), names, is_binary=True, guessed=True) if set(names) <= set(validation.columns) else None
        rows = _read(task, validation, columns, like=like)
        split = _numbered(rows, _classes(names, "the model", folded=True))
        read = columns_read({validation.path: rows.layout})
        return ClassificationData(task, names, Split([], None, []), split, columns=read)

    def option_problems(self, data: ClassificationData, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if weights := given.get("class_weights"):
            yield from (("class_weights", text) for text in number_problems(weights, data.labels))
        primary, rows = data.task.primary_metric, data.validation.labels
        if primary in OF_SCORES and not any(
            0 < sum(number in row for row in rows) < len(rows) for number in range(len(data.labels))
        ):
            rule = "must be another metric where each label has all or none of the rows to evaluate on"
            yield "metric", f"{rule}, got {primary}; take f1_micro, or add other rows"


def _read(task: Task, table: Table, wanted: Columns, *, minimum: int = 1, like: _Layout | None = None) -> _Rows:
    """The rows of a table, at least `minimum`, in the columns of `like` where it has them."""
    texts = find_texts(task, table, wanted)
    if like is not None and wanted.text is None and set(like.texts) <= set(table.columns):
        texts = like.texts or texts
    lists = _named_lists(table, wanted, like)
    asked = lists or tuple(name for name in table.columns if name not in texts)
    read: list[tuple[int, list[str], Sequence[object]]] = []
    for line, cells in table.rows((*texts, *asked)):
        if isinstance(cells, str):
            raise table.error(line, cells)
        row = [checked_text(table, line, name, cell) for name, cell in zip(texts, cells, strict=False)]
        read.append((line, row, cells[len(texts) :]))
    check_late(table, (*texts, *lists), lambda whole: (*find_texts(task, whole, wanted), *lists))
    if len(read) < minimum:
        raise DataError(table.path, f"the rows must be at least {minimum}, got {len(read)}")
    is_binary = not lists or len(lists) > 1 or (like is not None and like.is_binary)
    columns = lists or _of_truths(table, asked, [cells for _, _, cells in read[:_LOOKED_AT]])
    guessed = wanted.text is None or wanted.label is None
    layout = _Layout(texts, columns, is_binary, guessed)
    if not is_binary:
        cells_of_text = [cells[0] for _, _, cells in read if isinstance(cells[0], str)]
        separator = like.separator if like is not None and like.separator else _separator(cells_of_text)
        layout = _Layout(texts, columns, is_binary, guessed, separator)
    labels, respelled = [], set[str]()
    for line, _, cells in read:
        if is_binary:
            found = _true_columns(table, line, columns, [cells[asked.index(name)] for name in columns])
        else:
            found = _listed(table, line, columns[0], cells[0], layout.separator)
        respelled |= {name for name in found if spelled(name) != name}
        labels.append(sorted({spelled(name) for name in found}))
    return _Rows(
        table, layout, [line for line, _, _ in read], [row for _, row, _ in read], labels, frozenset(respelled)
    )


def _named_lists(table: Table, wanted: Columns, like: _Layout | None) -> tuple[str, ...]:
    """The column of lists, or the columns of 0 and 1 that are named; () where these are to be found."""
    if wanted.label is not None:
        whole = find_named(table, [wanted.label])
        names = whole or find_named(table, [name.strip() for name in wanted.label.split(",")])
        if not names:
            rule = "label_column must be one of the columns, or several of them, separated by commas"
            raise NamedColumnMissing(table.path, f"{rule}: {listed(table.columns)}, got {shown(wanted.label)}")
        return names
    if like is not None and set(like.labels) <= set(table.columns):
        return like.labels
    if like is not None and like.is_binary:
        absent = [name for name in like.labels if name not in table.columns]
        raise DataError(
            table.path,
            f"the columns must have those of the labels, {listed(like.labels)}, got none called {listed(absent)}",
        )
    return next((found for name in _LISTS if (found := find_named(table, [name]))), ())


def _of_truths(table: Table, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> tuple[str, ...]:
    """The columns of 0 and 1."""
    found = [name for index, name in enumerate(columns) if all(_truth(cells[index]) is not None for cells in rows)]
    if len(found) < _TWO:
        remedy = "name it, or name the columns of 0 and 1, separated by commas (label_column, --label-column)"
        known = f"a column must have the lists of labels, called {', '.join(_LISTS)}, or each label a column of 0 and 1"
        raise DataError(table.path, f"{known}, got the columns: {listed(table.columns)}; {remedy}")
    return tuple(found)


def _truth(cell: object) -> bool | None:
    """Whether a cell says that a label belongs to a text; None where it says neither."""
    key = cell.strip().casefold() if isinstance(cell, str) else cell
    try:
        return _TRUTHS.get(key)
    except TypeError:  # a list
        return None


def _true_columns(table: Table, line: int, columns: Sequence[str], cells: Sequence[object]) -> list[str]:
    found = []
    for name, cell in zip(columns, cells, strict=True):
        if (truth := _truth(cell)) is None:
            raise table.error(line, f"{shown(name)} must be 0 or 1, got {shown(cell)}")
        if truth:
            found.append(name)
    return found


def _separator(cells: Sequence[str]) -> str:
    plain = [cell for cell in cells if not cell.lstrip().startswith("[")]
    return next((mark for mark in SEPARATORS if any(mark in cell for cell in plain)), "")


def _listed(table: Table, line: int, column: str, cell: object, separator: str) -> list[str]:
    """The labels in a cell of lists, as they are written."""
    example = (
        f"must be a list of labels, such as {json.dumps(['good', 'too long'])}, or text with {' '.join(SEPARATORS)}"
    )
    value = cell
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            value = json.loads(cell)
        except (ValueError, RecursionError):
            raise table.error(line, f"{shown(column)} {example}, got broken JSON: {shown(cell)}") from None
    elif isinstance(cell, str):
        parts = cell.split(separator) if separator else [cell]
        value = [part.strip() for part in parts] if cell.strip() else []
    if not isinstance(value, list | tuple):
        got = "nothing; write [] for no label" if cell is None else shown(cell)
        raise table.error(line, f"{shown(column)} {example}, got {got}")
    return [_name(table, line, column, one) for one in value]


def _name(table: Table, line: int, column: str, value: object) -> str:
    classes = table.classes.get(column, ())
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if classes and not 0 <= number < len(classes):
            raise table.error(line, f"{shown(column)} must have numbers of its {len(classes)} classes, got {number}")
        return classes[number] if classes else str(number)
    if not isinstance(value, str) or not spelled(value.strip()) or not is_writable(value):
        raise table.error(line, f"{shown(column)} must have labels that are text and not blank, got {shown(value)}")
    return value.strip()


def _names(rows: _Rows) -> tuple[str, ...]:
    """All labels: in the order of their columns, of the numbers of the table's classes, or of the alphabet."""
    layout, table = rows.layout, rows.table
    known = layout.labels if layout.is_binary else table.classes.get(layout.labels[0], ())
    names = tuple(known) or tuple(sorted({name for row in rows.labels for name in row}))
    if not _TWO <= len(names) <= MAX_CLASSES:
        remedy = "; the task text-classification takes one label for each text" * (len(names) < _TWO)
        raise DataError(table.path, f"the labels must be from {_TWO} to {MAX_CLASSES:,}, got {len(names):,}{remedy}")
    return names


def _classes(names: tuple[str, ...], where: str, *, folded: bool = False) -> Classes:
    return Classes(names, {}, f"{listed(names)} (the labels of {where})", folded=folded)


def _numbered(rows: _Rows, classes: Classes) -> Split:
    """The rows with their labels numbered, in ascending order."""
    numbers = {name: classes.named(name) for row in rows.labels for name in row}
    labels: list[list[int]] = []
    for line, row in zip(rows.lines, rows.labels, strict=True):
        found = [number for name in row if (number := numbers[name]) is not None]
        if len(found) < len(row):
            unknown = [name for name in row if numbers[name] is None]
            raise rows.table.error(line, f"the labels must be among {classes.allowed}, got {listed(unknown)}")
        labels.append(sorted(set(found)))
    texts, *pairs = (list(column) for column in zip(*rows.texts, strict=True))
    return Split(texts, pairs[0] if pairs else None, labels)


TASKS = (
    Task(
        name="multi-label-classification",
        kind=MultiLabel(),
        description="your own texts, or pairs of texts, each with any of several labels",
        text_columns=("text",),
        label_column="labels",
        metrics=MultiLabel.metrics,
        primary_metric="f1_micro",
        hub_id=None,
    ),
)
