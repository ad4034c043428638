"""Tables of text in files: csv, tsv, JSON lines and parquet, read row by row.

    .csv                       RFC 4180: cells may be quoted, and then hold commas, quotes and line ends
    .tsv                       no quoting at all: GLUE's own files hold unbalanced quotes
    .jsonl .ndjson .json       one JSON object a line
    .parquet                   needs pyarrow

Text is UTF-8, with or without a byte order mark.
"""

from __future__ import annotations

import codecs
import csv
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from mvprune.excerpts import shown

MAX_BYTES = 2 * 2**30
MAX_CELL = 16 * 2**20
"""Characters of a csv cell: one whose quote is never closed would take all of the file into memory."""


class DataError(ValueError):
    """Data that cannot be used. The text is one sentence: file, line, what was found, what is allowed.

    Attributes:
        path: the file, or the name of the data set.
        line: the line of the file (parquet and data sets: the row), from 1; None where it is about all of it.
    """

    def __init__(self, path: Path | str, message: str, *, line: int | None = None, unit: str = "line") -> None:
        place = f"{path}, {unit} {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {message}")
        self.path = path
        self.line = line


@dataclass(frozen=True)
class Table:
    """An opened table.

    Attributes:
        path: the file, or the name of the data set.
        columns: names of the columns, all different.
        rows: called once with the wanted columns, iterates over (line, cells); a row that does not fit the header
            comes as a sentence in place of its cells. Raises DataError on what cannot be read.
        unit: what `line` counts, "line" or "row".
        classes: by column, the names that its numbers stand for, where the data set knows them.
    """

    path: Path | str
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[tuple[int, Sequence[object] | str]]]
    unit: str = "line"
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_table(path: Path, implied_header: tuple[str, ...] = ()) -> Table:
    """Opens a file by its suffix.

    Args:
        path: the file.
        implied_header: the columns of csv and tsv files whose first line is a row already: as many cells, and none
            of these names among them.

    Raises:
        DataError: the file is missing, too large, empty, of another kind, or its beginning cannot be read.
    """
    check_file(path)
    match path.suffix.lower():
        case ".csv":
            return _delimited(path, _csv_records(path), implied_header)
        case ".tsv":
            return _delimited(path, _tsv_records(path), implied_header)
        case ".jsonl" | ".ndjson" | ".json":
            return _objects(path, _json_records(path))
        case ".parquet":
            return _parquet(path)
        case suffix:
            allowed = ".csv, .tsv, .jsonl, .ndjson, .json (one object a line), .parquet"
            raise DataError(path, f"the suffix {shown(suffix)} is not known; allowed: {allowed}")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1, with their ends.

    Only a line feed ends one: text may hold the other separators of Unicode.

    Raises:
        DataError: the file is missing, too large or empty, or it is not UTF-8.
    """
    check_file(path)
    return enumerate(_lines(path), 1)


def check_file(path: Path) -> os.stat_result:
    """The state of a file. Raises DataError where `path` is missing, no regular file, empty, or larger than 2 GiB."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(path, "this is not a file")
    if status.st_size == 0:
        raise DataError(path, "the file is empty")
    if status.st_size > MAX_BYTES:
        raise DataError(path, f"the file has {status.st_size:,} bytes; at most {MAX_BYTES:,} are allowed")
    return status


def checked_text(table: Table, line: int, column: str, value: object) -> str:
    """The cell `value` of `column`. Raises DataError where it is not text, blank, or cannot be written as UTF-8."""
    if flaw := flaw_of_text(value):
        raise DataError(table.path, f"{shown(column)} {flaw}", line=line, unit=table.unit)
    return str(value)


def flaw_of_text(value: object) -> str:
    """Why a value is no text, as in "is empty"; "" for one that is not blank and can be written as UTF-8."""
    if value is None:
        return "is missing"
    if not isinstance(value, str):
        return f"is {shown(value)}, which is not text"
    if not value.strip():
        return "is empty"
    return "" if is_writable(value) else f"is {shown(value)}, which holds a NUL character or half a surrogate pair"


def is_writable(text: str) -> bool:
    """Whether a text has neither NUL characters nor halves of surrogate pairs."""
    try:
        return "\0" not in text and (text.isascii() or text.encode() is not None)
    except UnicodeEncodeError:
        return False


def table_of_rows(
    name: str, rows: Iterable[Mapping[str, object]], classes: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Table:
    """A table of rows that are in memory already, such as a data set of the hub called `name`."""
    return replace(_objects(name, enumerate(rows, 1), unit="row"), classes=classes)


def unreadable(path: Path, error: Exception) -> DataError:
    """The DataError for what the system or a library said of a file."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0][:200]
    return DataError(path, f"the file cannot be read ({reason})")


def _lines(path: Path) -> Iterator[str]:
    """Decoded lines with their ends."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
                if b"\0" in line:
                    raise DataError(path, "there is a NUL byte; text must be UTF-8", line=number)
                try:
                    yield line.decode()
                except UnicodeDecodeError as error:
                    found = f"byte 0x{line[error.start]:02x} at position {error.start + 1} is not UTF-8"
                    raise DataError(path, f"{found}; text must be UTF-8", line=number) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _tsv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(_lines(path), 1):
        if bare := line.rstrip("\r\n"):
            yield number, bare.split("\t")


def _csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))  # of the process; at first 128 KiB
    reader = csv.reader(_lines(path), strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(path, f"broken csv ({error}); quote cells as in RFC 4180", line=first_line) from None
        if cells is None:
            return
        if cells:
            yield first_line, cells


def _json_records(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            where = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else f"{error}"
            message = f"broken JSON ({where}); one JSON object a line is allowed"
            raise DataError(path, message, line=number) from None
        if not isinstance(value, dict):
            raise DataError(path, f"the JSON value is {shown(value)}; an object is allowed", line=number)
        yield number, value


def _delimited(path: Path, records: Iterator[tuple[int, list[str]]], implied_header: tuple[str, ...]) -> Table:
    number, first = next(records, (0, None))
    if first is None:
        raise DataError(path, "the file is empty")
    columns = tuple(cell.strip() for cell in first)
    if len(columns) == len(implied_header) and not {name.lower() for name in columns} & set(implied_header):
        columns, records = implied_header, chain([(number, first)], records)

    def rows(names: Sequence[str]) -> Iterator[tuple[int, Sequence[object] | str]]:
        picked = [columns.index(name) for name in names]
        for line, cells in records:
            if len(cells) != len(columns):
                yield line, f"the row has {len(cells)} cells, the header has {len(columns)}"
            else:
                yield line, [cells[index] for index in picked]

    return Table(path, _distinct(path, columns), rows)


def _objects(path: Path | str, records: Iterable[tuple[int, Mapping[str, object]]], unit: str = "line") -> Table:
    iterator = iter(records)
    first = next(iterator, None)
    if first is None:
        raise DataError(path, "there are no rows")

    def rows(names: Sequence[str]) -> Iterator[tuple[int, Sequence[object] | str]]:
        for line, record in chain([first], iterator):
            yield line, [record.get(name) for name in names]

    return Table(path, tuple(first[1]), rows, unit)


def _parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise DataError(path, "reading parquet needs pyarrow: pip install pyarrow") from None
    broken = (pyarrow.ArrowException, OSError, ValueError, OverflowError)
    try:
        file = parquet.ParquetFile(path)
        columns = tuple(file.schema_arrow.names)
    except broken as error:
        raise unreadable(path, error) from None

    def rows(names: Sequence[str]) -> Iterator[tuple[int, Sequence[object] | str]]:
        try:
            batches = file.iter_batches(columns=list(names))
            columns_of_batches = ([batch.column(name).to_pylist() for name in names] for batch in batches)
            yield from enumerate(chain.from_iterable(zip(*lists, strict=True) for lists in columns_of_batches), 1)
        except broken as error:
            raise unreadable(path, error) from None

    return Table(path, _distinct(path, columns), rows, "row")


def _distinct(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(columns):
        if name and name in columns[:index]:
            raise DataError(path, f"the column {shown(name)} appears twice")
    return columns
