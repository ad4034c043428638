"""Tables of text in files: csv, tsv, JSON lines and parquet, read row by row.

    .csv                       RFC 4180: cells may be quoted, and then hold commas, quotes and line ends
    .tsv                       no quoting at all: GLUE's own files hold unbalanced quotes
    .jsonl .ndjson .json       one JSON object a line
    .parquet                   needs pyarrow

Text is UTF-8, with or without a byte order mark. All but parquet may be compressed (`mvprune.data.textfiles`).
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mvprune.common.excerpts import shown
from mvprune.data.reading import spelled
from mvprune.data.textfiles import COMPRESSED, DataError, check_file, lines_of, suffix_of, unreadable

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
"""Suffixes of tables."""
Rows = Iterable[Mapping[str, object]]
"""Rows in memory, mappings with the same keys."""
MAX_CELL = 16 * 2**20
"""Characters of a csv cell: one whose quote is never closed would take all of the file into memory."""
_WITH_HEADER = (".csv", ".tsv")
_WORDS_OF_DATA = 4  # of a cell that is likely no name
_FIRST_OBJECTS = 1000
"""JSON objects whose keys together are a table's columns; those of later ones are compared with them."""


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
        late: keys of JSON objects that are not among `columns`, with the line of the first object that has them;
            complete when all rows are read.
    """

    path: Path | str
    columns: tuple[str, ...]
    rows: Callable[[Sequence[str]], Iterator[tuple[int, Sequence[object] | str]]]
    unit: str = "line"
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)

    def error(self, line: int, message: str) -> DataError:
        """The DataError about one row."""
        return DataError(self.path, message, line=line, unit=self.unit)


class NoReader(DataError):
    """A file that only a package can read which is not installed here.

    Attributes:
        package: its name.
    """

    def __init__(self, path: Path, message: str, *, package: str) -> None:
        super().__init__(path, message)
        self.package = package


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
    match suffix_of(path):
        case ".csv":
            return _delimited(path, _csv_records(path), implied_header)
        case ".tsv":
            return _delimited(path, _tsv_records(path), implied_header)
        case ".jsonl" | ".ndjson" | ".json":
            return _objects(path, _json_records(path))
        case ".parquet" if path.suffix.lower() == ".parquet":
            return _parquet(path)
        case _:
            allowed = ".csv, .tsv, .jsonl, .ndjson, .json (one object a line), .parquet"
            remedy = f"all but .parquet may have {', '.join(COMPRESSED)} after it"
            raise DataError(path, f"the suffix must be {allowed}, got {shown(path.suffix)}; {remedy}")


def checked_text(table: Table, line: int, column: str, value: object) -> str:
    """The cell `value` of `column`. Raises DataError where it is not text, blank, or cannot be written as UTF-8."""
    if flaw := flaw_of_text(value):
        raise table.error(line, f"{shown(column)} {flaw}")
    return str(value)


def flaw_of_text(value: object) -> str:
    """The rule that a value breaks as text, such as "must not be blank"; "" for one that can be written as UTF-8."""
    if value is None:
        return "must be text, got nothing"
    if not isinstance(value, str):
        return f"must be text, got {shown(value)}"
    if not value.strip():
        return "must not be blank"
    rule = "must have no NUL character and no half of a surrogate pair"
    return "" if is_writable(value) else f"{rule}, got {shown(value)}"


def is_writable(text: str) -> bool:
    """Whether a text has neither NUL characters nor halves of surrogate pairs."""
    try:
        return "\0" not in text and (text.isascii() or text.encode() is not None)
    except UnicodeEncodeError:
        return False


def table_of_rows(name: str, rows: Rows, classes: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Table:
    """A table of rows that are in memory already, such as a data set of the hub called `name`."""
    return replace(_objects(name, enumerate(rows, 1), unit="row"), classes=_named_classes(name, classes))


def _tsv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines_of(path), 1):
        if bare := line.rstrip("\r\n"):
            yield number, bare.split("\t")


def _csv_records(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL))  # for the whole process; at first 128 KiB
    reader = csv.reader(lines_of(path), strict=True)
    while True:
        first_line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise DataError(path, f"broken csv ({_csv_flaw(error)})", line=first_line) from None
        if cells is None:
            return
        if cells:
            yield first_line, cells


def _csv_flaw(error: csv.Error) -> str:
    """An error of the csv module, in words for whoever made the file."""
    told = str(error)
    if "new-line character" in told:
        return "a carriage return ends no line; quote the cell that holds it, as in RFC 4180"
    if "unexpected end of data" in told:
        return "a quote is opened here and never closed"
    if "field limit" in told:
        return f"a cell must have at most {MAX_CELL:,} characters, got more; is a quote never closed?"
    return "text follows a closing quote; write a quote inside of a quoted cell twice, as in RFC 4180"


def _json_records(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in enumerate(lines_of(path), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_object)
        except _TwiceInObject as error:
            raise DataError(
                path, f"the keys of an object must be different, got {shown(error.key)} twice", line=number
            ) from None
        except (ValueError, RecursionError) as error:
            if line.startswith("["):
                raise _array(path, number) from None
            where = f"{error.msg} at column {error.colno}" if isinstance(error, json.JSONDecodeError) else f"{error}"
            message = f"the line must be one JSON object, got broken JSON ({where})"
            raise DataError(path, message, line=number) from None
        if isinstance(value, list):
            raise _array(path, number)
        if not isinstance(value, dict):
            raise DataError(path, f"the line must be one JSON object, got {shown(value)}", line=number)
        yield number, value


class _TwiceInObject(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object. Of a key that appears twice, `json` would keep the second value without a word."""
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise _TwiceInObject(name)
        found[name] = value
    return found


def _array(path: Path, line: int) -> DataError:
    remedy = "convert the file, such as with: jq -c '.[]' OLD > NEW.jsonl"
    return DataError(path, f"the line must be one JSON object, got a JSON array; {remedy}", line=line)


def _delimited(path: Path, records: Iterator[tuple[int, list[str]]], implied_header: tuple[str, ...]) -> Table:
    number, first = next(records, (0, None))
    if first is None:
        raise DataError(path, "the file must not be empty")
    columns = tuple(cell.strip() for cell in first)
    if len(columns) == len(implied_header) and not {name.lower() for name in columns} & set(implied_header):
        columns, records = implied_header, chain([(number, first)], records)

    def rows(names: Sequence[str]) -> Iterator[tuple[int, Sequence[object] | str]]:
        picked = [columns.index(name) for name in names]
        for line, cells in records:
            if len(cells) != len(columns):
                yield line, f"the row must have {len(columns)} cells, as the header has, got {len(cells)}"
            else:
                yield line, [cells[index] for index in picked]

    return Table(path, _distinct(path, columns), rows)


def _objects(path: Path | str, records: Iterable[tuple[int, Mapping[str, object]]], unit: str = "line") -> Table:
    iterator = iter(records)
    first = list(islice(iterator, _FIRST_OBJECTS))
    if not first:
        raise DataError(path, "the rows must be at least 1, got 0")
    columns = dict.fromkeys(name for _, record in first for name in record)
    late: dict[str, int] = {}

    def rows(names: Sequence[str]) -> Iterator[tuple[int, Sequence[object] | str]]:
        for line, record in chain(first, iterator):
            if not record.keys() <= columns.keys():
                for name in record.keys() - columns.keys():
                    late.setdefault(name, line)
            yield line, [record.get(name) for name in names]

    return Table(path, tuple(columns), rows, unit, late=late)


def _parquet(path: Path) -> Table:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise NoReader(path, "reading parquet needs pyarrow: pip install pyarrow", package="pyarrow") from None
    broken = (pyarrow.ArrowException, OSError, ValueError, OverflowError)
    try:
        file = parquet.ParquetFile(path)
        schema = file.schema_arrow
    except broken as error:
        raise unreadable(path, error) from None
    columns, classes = tuple(schema.names), _classes_of_metadata(path, schema.metadata or {})

    def rows(names: Sequence[str]) -> Iterator[tuple[int, Sequence[object] | str]]:
        try:
            batches = file.iter_batches(columns=list(names))
            columns_of_batches = ([batch.column(name).to_pylist() for name in names] for batch in batches)
            yield from enumerate(chain.from_iterable(zip(*lists, strict=True) for lists in columns_of_batches), 1)
        except broken as error:
            raise unreadable(path, error) from None

    return Table(path, _distinct(path, columns), rows, "row", classes)


def _classes_of_metadata(path: Path, metadata: Mapping[bytes, bytes]) -> dict[str, tuple[str, ...]]:
    """By column, the names of its classes, as the library datasets writes them beside a table's schema."""
    if b"huggingface" not in metadata:
        return {}
    try:
        described = json.loads(metadata[b"huggingface"])
        features = described["info"]["features"]
        found = {str(column): _class_names(feature) for column, feature in features.items()}
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return {}  # another program's, or about something else
    return _named_classes(path, found)


def _named_classes(path: Path | str, classes: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The names of classes by column, as they are read. Raises DataError unless they are different and not blank."""
    found: dict[str, tuple[str, ...]] = {}
    for column, names in classes.items():
        if not all(isinstance(name, str) and is_writable(name) and spelled(name).strip() for name in names):
            raise DataError(
                path, f"the names of the classes of {shown(column)} in the metadata must be text that is not blank"
            )
        found[column] = tuple(map(spelled, names))
        if len(set(found[column])) < len(names):
            raise DataError(path, f"the names of the classes of {shown(column)} in the metadata must be different")
    return {column: names for column, names in found.items() if names}


def _class_names(feature: Any) -> tuple[str, ...]:
    """The names of a feature's classes, or of those in its lists; () where it has none."""
    if isinstance(feature, list):  # how old versions describe a list
        return _class_names(feature[0]) if feature else ()
    if not isinstance(feature, dict):
        return ()
    if feature.get("_type") == "ClassLabel":
        return tuple(feature.get("names") or ())
    return _class_names(feature.get("feature"))


def _distinct(path: Path, columns: tuple[str, ...]) -> tuple[str, ...]:
    for index, name in enumerate(columns):
        if name and name in columns[:index]:
            message = f"the columns must have different names, got {shown(name)} twice{without_header(path, columns)}"
            raise DataError(path, message)
    return columns


def without_header(path: Path | str, columns: Sequence[str]) -> str:
    """What to do about a table whose first line is likely a row and no header, as the end of an error: one of its cells
    is a number or has many words."""
    if suffix_of(Path(path)) not in _WITH_HEADER or not any(map(_is_like_data, columns)):
        return ""
    return "; if the first line is a row already, put a line with the names of the columns before it"


def _is_like_data(name: str) -> bool:
    return len(name.split()) >= _WORDS_OF_DATA or re.fullmatch(r"[-+]?\d+([.,]\d+)?", name) is not None
