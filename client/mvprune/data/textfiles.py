"""Files of text: lines of UTF-8, with or without a byte order mark, compressed or not.

A name that ends in .gz or .bz2 says that the file is compressed; what kind of data it holds says the suffix
before that.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

MAX_BYTES = 2 * 2**30
"""Of a file, also after decompression."""
MAX_LINE = 64 * 2**20
"""Bytes of a line: a file without line ends, compressed or not, would take all of it into memory."""
MAX_RATIO = 100
"""Times its own size that a compressed file may expand to; text does by 3 to 10."""
_ALWAYS_ALLOWED = 64 * 2**20  # bytes that a small compressed file may expand to, whatever the ratio

_OTHER_KINDS: Mapping[bytes, str] = MappingProxyType(
    {
        b"\x1f\x8b": "gzip; name it {name}.gz",
        b"BZh": "bzip2; name it {name}.bz2",
        b"PK\x03\x04": "a zip archive or an Excel workbook; extract the file, or save the sheet as csv",
        b"\xfd7zXZ\0": "xz; decompress it with: xz -d",
        b"\x28\xb5\x2f\xfd": "zstd; decompress it with: zstd -d",
        b"PAR1": "parquet; let its name end in .parquet",
        b"ARROW1": "an Arrow file; save it as parquet",
        b"SQLite format 3": "a SQLite database; save the table as csv",
        b"\xff\xfe": "UTF-16; convert it, such as with: iconv -f UTF-16 -t UTF-8 OLD > NEW",
        b"\xfe\xff": "UTF-16; convert it, such as with: iconv -f UTF-16 -t UTF-8 OLD > NEW",
    }
)
"""How files begin that are not UTF-8 text, and what to do with each."""
_OPENERS: Mapping[str, Callable[..., Any]] = MappingProxyType({".gz": gzip.open, ".bz2": bz2.open})
COMPRESSED = tuple(_OPENERS)
"""Endings of the names of compressed files."""


class DataError(ValueError):
    """Data that cannot be used. The text is one sentence: file, line, what was found, what is allowed.

    Attributes:
        path: the file, or the name of the data set.
        line: the line of the file (parquet and data sets: the row), from 1; None where it is about all of it.
        message: the text without the place.
    """

    def __init__(self, path: Path | str, message: str, *, line: int | None = None, unit: str = "line") -> None:
        place = f"{path}, {unit} {line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {message}")
        self.path = path
        self.line = line
        self.message = message


def suffix_of(path: Path) -> str:
    """The suffix that names the kind of data, in lower case: ".tsv" of train.tsv and of train.tsv.gz."""
    return (Path(path.stem) if _is_compressed(path) else path).suffix.lower()


def expanded_limit(path: Path, size: int) -> int:
    """The most bytes that a file of `size` bytes may hold: as many, or what a compressed one may expand to."""
    return min(MAX_BYTES, max(_ALWAYS_ALLOWED, MAX_RATIO * size)) if _is_compressed(path) else size


def check_file(path: Path) -> os.stat_result:
    """The state of a file. Raises DataError where `path` is missing, no regular file, empty, or larger than 2 GiB."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if not stat.S_ISREG(status.st_mode):
        raise DataError(path, "the path must be that of a file, got a folder or something else")
    if status.st_size == 0:
        raise DataError(path, "the file must not be empty")
    if status.st_size > MAX_BYTES:
        raise DataError(path, f"the file must have at most {MAX_BYTES:,} bytes, got {status.st_size:,}")
    return status


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file, numbered from 1, with their ends.

    Only a line feed ends one: text may hold the other separators of Unicode.

    Raises:
        DataError: the file is missing, too large or empty; it is not UTF-8; its lines end in carriage returns only.
    """
    check_file(path)
    return enumerate(lines_of(path), 1)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a file that `check_file` has seen, with their ends. Raises DataError."""
    with _opened(path) as (file, limit):
        number, total = 0, 0
        while raw := file.readline(MAX_LINE + 1):
            number, total = number + 1, total + len(raw)
            _check_expanded(path, total, limit)
            if len(raw) > MAX_LINE:
                raise DataError(path, f"the line must have at most {MAX_LINE:,} bytes, got more", line=number)
            if number == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
                if b"\r" in raw and not raw.endswith(b"\n"):  # no line feed in all of the file
                    remedy = r"convert the file, such as with: tr '\r' '\n' < OLD > NEW"
                    raise DataError(path, f"lines must end in LF or CR LF, got CR only (classic Mac OS); {remedy}")
            yield _decoded(path, raw, number)


def read_bytes(path: Path) -> bytes:
    """All of a file that `check_file` has seen, decompressed. Raises DataError."""
    with _opened(path) as (file, limit):
        content = file.read(limit + 1)
        _check_expanded(path, len(content), limit)
        return content


def unreadable(path: Path, error: Exception) -> DataError:
    """The DataError for what the system or a library said of a file."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error).partition("\n")[0][:200]
    return DataError(path, f"the file cannot be read ({reason})")


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() in _OPENERS


@contextmanager
def _opened(path: Path) -> Iterator[tuple[IO[bytes], int]]:
    """The file, and the most bytes that may be read from it."""
    try:
        limit = expanded_limit(path, path.stat().st_size) if _is_compressed(path) else MAX_BYTES
        with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            _check_kind(path, file.peek(16))
            yield file, limit
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(path, f"the compressed file is cut or corrupt ({error})") from None
    except OSError as error:
        raise unreadable(path, error) from None


def _check_kind(path: Path, begin: bytes) -> None:
    for mark, what in _OTHER_KINDS.items():
        if begin.startswith(mark):
            inside = "decompressed text" if _is_compressed(path) else "text"
            raise DataError(path, f"{inside} must be UTF-8, got {what.format(name=path.name)}")


def _check_expanded(path: Path, count: int, limit: int) -> None:
    if count > limit:
        raise DataError(path, f"the file must hold at most {limit:,} bytes after decompression, got more")


def _decoded(path: Path, line: bytes, number: int) -> str:
    if b"\0" in line:
        raise DataError(path, "text must be UTF-8 without NUL, got a NUL byte", line=number)
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        found = f"byte 0x{line[error.start]:02x} at position {error.start + 1}"
        raise DataError(path, f"text must be UTF-8, got {found}", line=number) from None
