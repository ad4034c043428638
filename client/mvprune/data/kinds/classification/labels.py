"""Labels of classification: how they are read, and which class each of them is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral, Real

from mvprune.common.excerpts import shown
from mvprune.data.reading import plain_label, spelled
from mvprune.data.tables import Table, checked_text

MAX_CLASSES = 1000

Label = int | float | str
"""A label as it was read: a number, or else stripped text as `spelled` returns it."""

# 18 digits fit 64 bits; "1.0" is how a column of integers with holes is written by pandas.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,17})(\.0+)?", re.ASCII)
# "3.80" is the number 3.8 in csv as it is in JSON, not a class of that name.
_DECIMAL = re.compile(r"-?[0-9]{0,17}\.[0-9]+", re.ASCII)
_TRUTH = ("false", "true")  # as JSON spells it; others spell it in another case


def read_label(table: Table, line: int, column: str, value: object, *, named: bool) -> Label:
    """A cell as a label; true and false are names of classes where classes are `named` by the data, else 1 and 0.

    Raises:
        DataError: the cell is no label.
    """
    if isinstance(value, list | tuple | dict):
        remedy = "the task multi-label-classification takes several labels for each text"
        message = f"{shown(column)} must be one label, got {shown(value)}; {remedy}"
        raise table.error(line, message)
    if value is None:
        message = f"{shown(column)} must have a value, got nothing; remove the row, or fill in its label"
        raise table.error(line, message)
    if isinstance(value, bool):
        return _TRUTH[value] if named else int(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real | Decimal):  # a Decimal is the type of a DECIMAL column of a database
        number = float(value)
        return int(number) if number.is_integer() else number
    text = spelled(checked_text(table, line, column, value).strip())
    if not text:
        raise table.error(line, f"{shown(column)} must have a visible character, got {shown(value)}")
    if _INTEGER.fullmatch(text):
        return int(text.partition(".")[0])
    return float(text) if _DECIMAL.fullmatch(text) else text


@dataclass(frozen=True)
class Classes:
    """The classes of a task or model, and which labels of data are them.

    Attributes:
        names: in the order of their numbers.
        integers: the number of the class that each integer label is; empty where integers are none.
        allowed: in words, for errors.
        by_number: whether integers are the classes' numbers even where the data has other names for them.
        folded: whether a name in another case, with '-' for '_', or with other invisible characters, is that class too,
            unless it could be another.
    """

    names: tuple[str, ...]
    integers: Mapping[int, int]
    allowed: str
    by_number: bool = False
    folded: bool = False
    _spelled: dict[str, int] = field(init=False, compare=False, repr=False)
    _plain: dict[str, int] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        numbers = _truths(self.names) | {spelled(name): number for number, name in enumerate(self.names)}
        object.__setattr__(self, "_spelled", numbers)
        often = Counter(map(plain_label, self.names)) if self.folded else {}
        plain = {
            plain_label(name): number for number, name in enumerate(self.names) if often.get(plain_label(name)) == 1
        }
        object.__setattr__(self, "_plain", plain)

    def named(self, name: str) -> int | None:
        """The number of the class called `name`; None where there is none."""
        found = self._spelled.get(spelled(name))
        if found is None and name.casefold() in _TRUTH:
            found = self._spelled.get(name.casefold())
        return self._plain.get(plain_label(name)) if found is None else found

    def meant_by(self, names: Sequence[str]) -> Sequence[str]:
        """`names` of the data's integers where they count, () where the integers themselves do."""
        return () if self.by_number and not any(self.named(name) is not None for name in names) else names

    def number(self, label: Label, names: Sequence[str] = ()) -> int | None:
        """The class that a label is; None for none. `names`: what the data's integers stand for."""
        if isinstance(label, str):
            return self.named(label)
        if isinstance(label, float):
            return None
        if not names:
            return self.integers.get(label)
        return self.named(names[label]) if 0 <= label < len(names) else None


def discovered(labels: Mapping[Label, int]) -> Sequence[tuple[str, int | None]]:
    """Classes of labels that were discovered: a name each, in alphabetical order, and the integer that it is, if any.

    Args:
        labels: each different label, with the first line that has it.

    Raises:
        BadLabel: which of them cannot be a class, and why.
    """
    first = next(iter(labels))
    names = sorted(label for label in labels if isinstance(label, str))
    integers = sorted(label for label in labels if isinstance(label, int))
    if len(labels) > MAX_CLASSES:
        message = f"there must be at most {MAX_CLASSES:,} different labels, got {len(labels):,}"
        raise BadLabel([*labels][MAX_CLASSES], message)
    for label in labels:
        if isinstance(label, float):
            remedy = "the task text-regression takes numbers"
            raise BadLabel(label, f"the label must be an integer or a name, got {label}; {remedy}")
        if names and integers and type(label) is not type(first):
            found = f"{shown(label)}, and {shown(first)} in line {labels[first]}"
            raise BadLabel(label, f"the labels must be all integers or all names, got {found}")
    start = 1 if integers and integers[0] > 0 else 0
    for expected, number in enumerate(integers, start):
        if number != expected:
            message = f"labels that are integers must run from 0 or 1 without a gap, got {shown(number)}"
            raise BadLabel(number, message)
    if {name.casefold() for name in names} <= set(_TRUTH):  # True and true are one class
        names = sorted({name.casefold(): name for name in names}.values(), key=str.casefold)
    return [*((str(number), number) for number in integers), *((name, None) for name in names)]


class BadLabel(Exception):
    """A label that cannot be a class."""

    def __init__(self, label: Label, message: str) -> None:
        super().__init__(message)
        self.label = label


def _truths(names: Sequence[str]) -> dict[str, int]:
    """True and false by their spelling in JSON, where the names are these two in whatever case."""
    folded = {name.casefold(): number for number, name in enumerate(names)}
    return folded if len(folded) == len(names) and folded.keys() <= set(_TRUTH) else {}
