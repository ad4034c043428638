"""Which columns of a table are the text and the label."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mvprune.excerpts import listed, shown
from mvprune.tables import DataError, Table
from mvprune.tasks import Task

# The first entry whose columns are all there is the text.
_TEXTS: tuple[tuple[str, ...], ...] = (
    ("text", "text_pair"),
    ("text",),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("#1 string", "#2 string"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence",),
    ("review",),
    ("title", "content"),
    ("title", "description"),
    ("content",),
    ("comment",),
    ("tweet",),
    ("document",),
    ("message",),
    ("body",),
    ("question",),
    ("title",),
    ("sentence1",),
    ("premise",),
)
_LABELS = (
    "label",
    "labels",
    "quality",
    "class",
    "target",
    "gold_label",
    "is_duplicate",
    "score",
    "sentiment",
    "category",
    "topic",
    "intent",
    "emotion",
    "rating",
    "stars",
)


@dataclass(frozen=True)
class Columns:
    """Names of columns; None: found by name."""

    text: str | None = None
    text_pair: str | None = None
    label: str | None = None


FOUND_BY_NAME = Columns()


def find_columns(task: Task, table: Table, wanted: Columns) -> tuple[str, list[str]]:
    """The label column and the one or two text columns of `table` for `task`.

    Where nothing is named, the task's own columns are looked for, then well-known names, in any case of letters.
    One text or two: as many as the task has; as many as are found where the user brings the data.

    Raises:
        DataError: nothing was found, or a named column is not there.
    """
    widths = (1, 2) if task.hub_id is None else (len(task.text_columns),)
    if wanted.text is None and wanted.text_pair is not None:
        raise DataError(table.path, "text_pair_column is given without text_column; give both")
    named = [name for name in (wanted.text, wanted.text_pair) if name is not None]
    if named and len(named) not in widths:
        needed = ("text_column alone", "text_column and text_pair_column")[widths[0] - 1]
        raise DataError(table.path, f"the task {task.name} needs {needed}")
    label = _find(table, [wanted.label]) if wanted.label is not None else _find(table, [task.label_column, *_LABELS])
    if label is None:
        raise _missing(table, "label", wanted.label, ", ".join(_LABELS))
    if named:
        candidates = [tuple(named)]
    else:
        own = [] if task.hub_id is None else [task.text_columns]
        candidates = own + [names for names in _TEXTS if len(names) in widths]
    for names in candidates:
        found = [column for name in names if (column := _find(table, [name])) is not None]
        if len(found) == len(names) and len({label, *found}) == 1 + len(found):
            return label, found
        if named and len(found) == len(names):
            raise DataError(table.path, f"one column is named twice: text {listed(named)}, label {label}")
    known = ", ".join(" + ".join(names) for names in candidates)
    raise _missing(table, "text", " + ".join(named) if named else None, known)


def find_column(table: Table, role: str, named: str | None, known: tuple[str, ...]) -> str:
    """The column called `named`, or else the first of `known` that there is, in any case of letters.

    Raises:
        DataError: there is none; `role` ("text", "label") says what for.
    """
    found = _find(table, known if named is None else [named])
    if found is None:
        raise _missing(table, role, named, ", ".join(known))
    return found


def _missing(table: Table, role: str, named: str | None, known: str) -> DataError:
    found = f"the columns are{', by the first line' if table.unit == 'line' else ''}: {listed(table.columns)}"
    if named is not None:
        return DataError(table.path, f"there is no column {shown(named)} for the {role}; {found}")
    return DataError(table.path, f"no {role} column: name it ({role}_column), or call it one of {known}; {found}")


def _find(table: Table, names: Iterable[str]) -> str | None:
    """The first of `names` that is a column, in any case (an exact match comes first)."""
    folded = {column.lower(): column for column in reversed(table.columns)}
    for name in names:
        if name in table.columns:
            return name
        if name.lower() in folded:
            return folded[name.lower()]
    return None
