"""Data files checked before they are sent, by the readers that server and worker use, in a bounded time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mvprune.data.columns import Columns
from mvprune.data.held_out import with_test
from mvprune.data.kinds.base import Task
from mvprune.data.loading import load_files
from mvprune.data.tables import NoReader, Table, read_table
from mvprune.data.textfiles import check_file, expanded_limit

WHOLE_BYTES = 32 << 20
"""Bytes of all files of a job, after decompression, up to which they are read whole: some seconds."""
FIRST_ROWS = 20_000
"""Rows that are read of each table where the files have more bytes."""


def check_files(task: Task, files: Mapping[str, Path], columns: Columns) -> tuple[str, ...]:
    """Checks the files of a task that are at hand.

    Small files are checked as `load_files` does. Of large tables the first rows are checked, without the others. So is
    a file whose counterpart is elsewhere.

    Args:
        task: the task.
        files: by their parameter, train, validation and test, or some of them.
        columns: names of columns; None: found by name.

    Returns:
        What is known of the data, and what was not read, a sentence each.

    Raises:
        DataError: what is wrong, in which file and line, and what is allowed.
    """
    sizes = [expanded_limit(path, check_file(path).st_size) for path in files.values()]
    is_small = sum(sizes) <= WHOLE_BYTES
    if is_small and files.keys() >= {"train", "validation"}:
        try:
            data = load_files(task, files["train"], files["validation"], columns)
            if "test" in files:
                data = with_test(data, files["test"], columns)
        except NoReader:
            pass
        else:
            return (*data.columns, *data.notes)
    return tuple(_check_one(task, name, path, columns, whole=is_small) for name, path in files.items())


def _check_one(task: Task, name: str, path: Path, columns: Columns, *, whole: bool) -> str:
    """Checks a file without the others; returns what was read of it."""
    kind = task.kind
    kind.check_columns(task, columns, path)
    later = "all of it is checked after it has been sent"
    if not whole and not kind.is_table(path):
        return f"{name}: {path.name} is larger than {WHOLE_BYTES >> 20} MiB, and was not read here; {later}"
    try:
        if whole:
            kind.check_examples(task, kind.read_file(task, path, columns), columns)
            return f"{name}: {path.name} was read here without the other file; {later}"
        counted = _First(read_table(path, task.implied_header))
        kind.check_examples(task, kind.read_table(counted.table, columns), columns)
    except NoReader as error:
        return f"{name}: {path.name} was not read here, where {error.package} is not installed; {later}"
    return f"{name}: the first {counted.read:,} rows of {path.name} were read here; {later}"


class _First:
    """The first rows of a table.

    Attributes:
        table: has only these.
        read: how many of them were read.
    """

    def __init__(self, whole: Table) -> None:
        self.read = 0
        self.table = replace(whole, rows=lambda names: self._rows(islice(whole.rows(names), FIRST_ROWS)))

    def _rows(self, rows: Iterator[tuple[int, Sequence[object] | str]]) -> Iterator[tuple[int, Sequence[object] | str]]:
        for row in rows:
            self.read += 1
            yield row
