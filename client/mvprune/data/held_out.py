"""The examples that a result is measured on once, and that nothing is chosen by: a file's, or a part of the validation
examples."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mvprune.data.columns import FOUND_BY_NAME, Columns
from mvprune.data.kinds.base import TaskData
from mvprune.data.loading import load_validation
from mvprune.data.textfiles import DataError

HELD_OUT_FROM = 6000
"""The fewest validation examples of which half are held out. On each half a loss of one point is significant if 8 % of
the answers change: 1.96 · √(0.08 / 3,000) is one point."""

_SEED = 0


def with_test(data: TaskData, path: Path, columns: Columns = FOUND_BY_NAME) -> TaskData:
    """Data with the examples of a file as its test.

    Args:
        data: to train and to evaluate on.
        path: the file, in one of the formats of `load_files`.
        columns: names of columns; None: found by name.

    Raises:
        DataError: what is wrong, in which line, and what is allowed; also where the examples are those of another file.
    """
    test = load_validation(data.task, path, getattr(data, "labels", ()), columns)
    for name in ("train", "validation"):
        if test.validation == getattr(data, name):
            remedy = "give examples that neither training nor the choice of a model has seen"
            raise DataError(
                path, f"the test file must have other examples than the {name} file, got the same; {remedy}"
            )
    one, other = (getattr(split, "pairs", None) is None for split in (data.validation, test.validation))
    if one != other:
        counts = ("one", "two") if other else ("two", "one")
        raise DataError(
            path,
            f"the columns of text must be as many as in the other files, got {counts[0]}, not {counts[1]}; name them",
        )
    return _replaced(data, test=test, notes=(*data.notes, *test.notes))


def hold_out(data: TaskData) -> TaskData:
    """Data with half of its validation examples, drawn at random, as its test, where there are `HELD_OUT_FROM` or more;
    else, and where it has a test, as it is."""
    count, kind = len(data.validation), data.task.kind
    is_whole = not kind.rows_are_examples or kind.has_groups
    if count < HELD_OUT_FROM or is_whole or getattr(data, "test", None) is not None:
        return data
    drawn = random.Random(_SEED).sample(range(count), count // 2)  # noqa: S311 (no secret)
    held = set(drawn)
    kept = [index for index in range(count) if index not in held]
    note = (
        f"{len(drawn):,} of {count:,} validation examples are held out, to test the result on what it was not chosen by"
    )
    others: dict[str, Any] = {"more_validation": {}} if hasattr(data, "more_validation") else {}  # are not held out
    test = _replaced(data, validation=_some(data.validation, sorted(drawn)), **others)
    return _replaced(data, validation=_some(data.validation, kept), test=test, notes=(*data.notes, note))


def _some(split: Any, which: Sequence[int]) -> Any:
    """Some examples of a sequence, of a dataclass of sequences of one length, or of what knows how to choose `some`."""
    if hasattr(split, "some"):
        return split.some(which)
    if isinstance(split, list | tuple):
        return type(split)(split[index] for index in which)
    lists = {field.name: getattr(split, field.name) for field in fields(split)}
    return replace(split, **{name: _some(one, which) for name, one in lists.items() if one is not None})


def _replaced(data: Any, **changes: Any) -> TaskData:
    changed: TaskData = replace(data, **changes)
    return changed
