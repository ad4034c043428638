"""Which columns of a table are the text and the label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from mvprune.common.excerpts import listed, shown
from mvprune.data.reading import plain
from mvprune.data.tables import Table, without_header
from mvprune.data.textfiles import DataError

if TYPE_CHECKING:
    from mvprune.data.kinds.base import Task

# The first entry whose columns are all in the table is the text. No later entry may be in the table too, unless the
# column is called text.
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
# The first is the label whatever other columns the table has. Of the others, the table must have only one.
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
    source: str | None = None
    target: str | None = None

    @classmethod
    def named_in(cls, options: object) -> Columns:
        """The names in an object with attributes such as text_column; one that is empty or not there is found by its
        name."""
        return cls(**{each.name: getattr(options, f"{each.name}_column", None) or None for each in fields(cls)})

    def or_else(self, others: Columns) -> Columns:
        """These names, and those of `others` where none is given; texts are taken from one of the two."""
        own = {each.name: getattr(self, each.name) or getattr(others, each.name) for each in fields(self)}
        if self.text or self.text_pair:
            own |= {"text": self.text, "text_pair": self.text_pair}
        return Columns(**own)


FOUND_BY_NAME = Columns()


class NamedColumnMissing(DataError):
    """A table does not have a column that is named."""


@dataclass(frozen=True)
class Found:
    """The columns that a task reads from a table.

    Attributes:
        label: the label's, "" where there is none.
        texts: one or two.
        guessed: whether one of them was found by a name that the user did not give.
    """

    label: str
    texts: tuple[str, ...]
    guessed: bool

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, the label first."""
        return (self.label, *self.texts) if self.label else self.texts

    def __str__(self) -> str:
        texts = zip(("text", "second text"), map(shown, self.texts), strict=False)
        label = [("label", shown(self.label))] if self.label else []
        return ", ".join(f"{role} {name}" for role, name in (*texts, *label)) + " (found by name)" * self.guessed


def find_columns(task: Task, table: Table, wanted: Columns, like: Found | None = None) -> Found:
    """The label column and the one or two text columns of `table` for `task`.

    Where nothing is named, the columns of `like` are taken if all are there; else the task's own columns are looked
    for, then well-known names, in any case of letters. One text or two: as many as the task has; as many as are found
    where the user brings the data.

    Raises:
        DataError: nothing was found, more than one column may be meant, or a named column is not there.
    """
    named, _ = _named_texts(task, table, wanted)
    if like is not None and not named and wanted.label is None and set(like.names) <= set(table.columns):
        try:
            found = find_columns(task, table, wanted)
        except DataError:
            return like
        return like if len(found.texts) == len(like.texts) else found
    label = _label(task, table, wanted.label)
    texts = find_texts(task, table, wanted, label)
    return Found(label, texts, guessed=not named or wanted.label is None)


def find_texts(task: Task, table: Table, wanted: Columns, label: str = "") -> tuple[str, ...]:
    """The one or two text columns of `table` for `task`, see `find_columns`; none of them is `label`.

    Raises:
        DataError: nothing was found, more than one column may be meant, or a named column is not there.
    """
    named, widths = _named_texts(task, table, wanted)
    if not named:
        return _texts(task, table, label, widths)
    texts = tuple(column for name in named if (column := _find(table, [name])) is not None)
    if len(texts) < len(named):
        raise _missing(table, "text", " + ".join(named), "")
    if len({label, *texts}) < 1 + len(texts):
        raise DataError(
            table.path,
            f"text and label must be different columns, got text {listed(named)} and label {shown(label)}",
        )
    return texts


def _named_texts(task: Task, table: Table, wanted: Columns) -> tuple[list[str], Sequence[int]]:
    """The names of text columns that are given, and how many there may be."""
    widths = (1, 2) if task.hub_id is None else (len(task.text_columns),)
    if wanted.text is None and wanted.text_pair is not None:
        raise DataError(table.path, "text_column must be given with text_pair_column, got only text_pair_column")
    named = [name for name in (wanted.text, wanted.text_pair) if name is not None]
    if named and len(named) not in widths:
        rule = "not be given" if widths == (1,) else "be given with text_column"
        raise DataError(table.path, f"text_pair_column must {rule} for the task {task.name}, got {listed(named)}")
    return named, widths


def find_column(table: Table, role: str, named: str | None, known: tuple[str, ...]) -> str:
    """The column called `named`, or else the only one of `known` in the table, in any case of letters. Where the table
    has the first of `known`, it may have others too.

    Raises:
        DataError: there is none, or more than one; `role` is what the column is for ("text", "label").
    """
    if named is not None:
        found = _find(table, [named])
        if found is None:
            raise _missing(table, role, named, "")
        return found
    candidates = [column for name in known if (column := _find(table, [name])) is not None]
    if not candidates:
        raise _missing(table, role, None, ", ".join(known))
    if len(candidates) > 1 and _find(table, known[:1]) is None:
        raise _ambiguous(table, role, candidates)
    return candidates[0]


def find_named(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of these names, in any case of letters; () unless all are there."""
    found = tuple(column for name in names if (column := _find(table, [name])) is not None)
    return found if len(found) == len(names) else ()


def check_late(table: Table, chosen: Sequence[str], choose: Callable[[Table], Sequence[str]]) -> None:
    """Raises DataError where late keys of JSON objects change what `choose` says the columns are, which were `chosen`.
    Called when all rows are read."""
    if table.late:
        others = choose(replace(table, columns=(*table.columns, *table.late)))
        for name in set(others) - set(chosen):
            message = f"the key {shown(name)} must be in all rows or in none, and no row before this one has it"
            raise table.error(table.late[name], message)


def _label(task: Task, table: Table, named: str | None) -> str:
    own = tuple(dict.fromkeys((task.label_column, *_LABELS)))
    return find_column(table, "label", named, own)


def _texts(task: Task, table: Table, label: str, widths: Sequence[int]) -> tuple[str, ...]:
    own = [] if task.hub_id is None else [task.text_columns]
    known = own + [names for names in _TEXTS if len(names) in widths]
    candidates = []
    for names in known:
        found = tuple(column for name in names if (column := _find(table, [name])) is not None)
        if len(found) == len(names) and len({label, *found}) == 1 + len(found):
            candidates.append((names, found))
    if not candidates:
        raise _missing(table, "text", None, ", ".join(" + ".join(names) for names in known))
    names, texts = candidates[0]
    others = [other for _, other in candidates if not set(other) <= set(texts)]
    if others and names not in own and names[0] != "text":
        raise _ambiguous(table, "text", [" + ".join(found) for found in (texts, *others)])
    return texts


def _ambiguous(table: Table, role: str, candidates: Iterable[str]) -> DataError:
    names = listed(dict.fromkeys(candidates))
    remedy = f"name the one that is meant ({role}_column, --{role}-column)"
    return DataError(table.path, f"only one column must look like the {role}, got {names}; {remedy}")


def _missing(table: Table, role: str, named: str | None, known: str) -> DataError:
    found = f"{', by the first line' if table.unit == 'line' else ''}: {listed(table.columns)}"
    header = without_header(table.path, table.columns)
    if named is not None:
        rule = f"{role}_column must be one of the columns{found}, got {shown(named)}{header}"
        return NamedColumnMissing(table.path, rule)
    remedy = header or f"; name it ({role}_column, --{role}-column)"
    return DataError(table.path, f"a column must be the {role}, called {known}, got the columns{found}{remedy}")


def _find(table: Table, names: Iterable[str]) -> str | None:
    """The first of `names` that is a column, in any case and with any invisible characters (an exact match comes
    first)."""
    folded = {plain(column): column for column in reversed(table.columns)}
    for name in names:
        if name in table.columns:
            return name
        if plain(name) in folded:
            return folded[plain(name)]
    return None
