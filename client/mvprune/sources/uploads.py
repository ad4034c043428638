"""Models and data files that clients send: what is sent of them, its digest, and how jobs refer to it.

The content is cut into chunks of `CHUNK_BYTES`. Each chunk is known by its SHA-256, and the whole by a digest of the
files' names, sizes and chunks. Client, server and workers compute both, and none takes them from another.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from mvprune.sources import schemes
from mvprune.sources.references import MAX_LENGTH, InvalidReference

SCHEME = schemes.UPLOAD
CHUNK_BYTES = 8 << 20
MAX_FILES = 1_000
MAX_FILE_BYTES = 20 << 30
MAX_CHUNKS = MAX_FILE_BYTES // CHUNK_BYTES  # in an upload: each is two rows of the server's database
MAX_REPEATS = 4
"""Times the bytes of its different chunks that an upload may have: a worker writes all of it to its disk."""
_ALWAYS_ALLOWED = 64 << 20  # bytes that an upload may have, however often its chunks repeat
# Weights, configuration, tokenizer: what workers take of a model's folder, here and in buckets. No pickles.
MODEL_SUFFIXES = frozenset({".json", ".safetensors", ".txt", ".model", ".spm", ".codes", ".jinja"})

_DIGEST = re.compile(r"[0-9a-f]{64}")
# A part of a model of sentence-transformers, such as its pooling, has a folder of its own.
_PART = re.compile(r"\d{1,2}_\w{1,40}/config\.json")
_HASHERS = 4  # chunks that are hashed at once: hashlib lets other threads run
_MAX_NAME = 200  # characters of a file's name
_FORM = "upload:DIGEST/NAME, where DIGEST has 64 hexadecimal digits"


class Kind(StrEnum):
    """The kinds of uploads."""

    MODEL = "model"
    DATA = "data"


@dataclass(frozen=True)
class File:
    """A file of an upload.

    Attributes:
        path: the file's name, of a model also in the folder of a part of it.
        size_bytes: the sum of its chunks' sizes: all have `CHUNK_BYTES` but the last, which is the rest.
        chunks: SHA-256 of each chunk; none in an empty file.
    """

    path: str
    size_bytes: int
    chunks: tuple[str, ...]

    def sizes(self) -> list[int]:
        """Bytes of each chunk."""
        whole, rest = divmod(self.size_bytes, CHUNK_BYTES)
        return [CHUNK_BYTES] * whole + [rest] * bool(rest)


@dataclass(frozen=True)
class Reference:
    """`upload:DIGEST/NAME`: the digest says which content, the name is for people."""

    digest: str
    name: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.digest}/{self.name}"


def is_upload(ref: str) -> bool:
    """Whether a reference is one to an upload; `parse` says whether it is well-formed."""
    return ref.startswith(SCHEME)


def parse(ref: str) -> Reference:
    """The digest and the name of `upload:DIGEST/NAME`. Raises InvalidReference."""
    digest, _, name = ref.removeprefix(SCHEME).partition("/")
    if not is_upload(ref) or len(ref) > MAX_LENGTH or not _DIGEST.fullmatch(digest) or not is_name(name):
        raise InvalidReference(f"the reference to an upload must be {_FORM}, got {ref[:200]!r}")
    return Reference(digest, name)


def is_name(name: str) -> bool:
    """Whether a file or folder may have this name: printable, no separator, not hidden, not too long."""
    return 0 < len(name) <= _MAX_NAME and name.isprintable() and not name.startswith(".") and not set(name) & set("/\\")


def digest(files: Sequence[File]) -> str:
    """The SHA-256 that identifies the content, 64 hexadecimal digits."""
    ordered = sorted(files, key=lambda file: file.path)
    listed = [{"path": file.path, "size_bytes": file.size_bytes, "chunks": file.chunks} for file in ordered]
    content = {"chunk_bytes": CHUNK_BYTES, "files": listed}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_files(kind: Kind, files: Sequence[File]) -> None:
    """Raises InvalidReference unless these may be the files of an upload."""
    if not 1 <= len(files) <= (1 if kind is Kind.DATA else MAX_FILES):
        allowed = "one file" if kind is Kind.DATA else f"1 to {MAX_FILES:,} files"
        raise InvalidReference(f"an upload of this kind must have {allowed}, got {len(files):,}")
    taken: set[str] = set()
    for file in files:
        shown = repr(file.path[:_MAX_NAME])
        if not (is_name(file.path) or (kind is Kind.MODEL and _PART.fullmatch(file.path))):
            rule = f"a name without '/', printable, not starting with a dot, of at most {_MAX_NAME} characters"
            raise InvalidReference(f"a file of an upload must have {rule}, got {shown}")
        if file.path.lower() in taken:
            raise InvalidReference(f"files of an upload must differ in more than upper and lower case, got two {shown}")
        taken.add(file.path.lower())
        if kind is Kind.MODEL and not is_sent(file.path):
            raise InvalidReference(f"files of a model must be {', '.join(sorted(MODEL_SUFFIXES))}, got {shown}")
        if not 0 <= file.size_bytes <= MAX_FILE_BYTES:
            raise InvalidReference(f"{shown} must have at most {MAX_FILE_BYTES:,} bytes, got {file.size_bytes:,}")
        if len(file.chunks) != len(file.sizes()) or not all(map(_DIGEST.fullmatch, file.chunks)):
            rule = f"the SHA-256 of each of its {len(file.sizes()):,} chunks of {CHUNK_BYTES:,} bytes"
            raise InvalidReference(f"{shown} must have {rule}, got {len(file.chunks):,} chunks")
    if (chunks := sum(len(file.chunks) for file in files)) > MAX_CHUNKS:
        rule = f"at most {MAX_CHUNKS:,} chunks of {CHUNK_BYTES:,} bytes ({MAX_FILE_BYTES >> 30} GiB)"
        remedy = "larger ones must be where the server reads them: see --roots and --buckets of the server"
        raise InvalidReference(f"an upload must have {rule}, got {chunks:,}; {remedy}")
    total = sum(file.size_bytes for file in files)
    different = {chunk: size for file in files for chunk, size in zip(file.chunks, file.sizes(), strict=True)}
    if total > max(_ALWAYS_ALLOWED, MAX_REPEATS * (sent := sum(different.values()))):
        rule = f"at most {MAX_REPEATS} times the bytes of its different chunks, {sent:,}"
        remedy = "remove what repeats, or compress the file (.gz, .bz2)" if kind is Kind.DATA else "remove what repeats"
        raise InvalidReference(f"an upload must have {rule}, got {total:,}; {remedy}")


def is_sent(name: str) -> bool:
    """Whether a file of a model's folder is sent, by its path in the folder."""
    return _PART.fullmatch(name) is not None or ("/" not in name and PurePosixPath(name).suffix in MODEL_SUFFIXES)


def sent_pattern() -> str:
    """The same rule as a regular expression for the whole path, also for JavaScript."""
    suffixes = "|".join(re.escape(suffix) for suffix in sorted(MODEL_SUFFIXES))
    return rf"{_PART.pattern}|[^./][^/]*(?:{suffixes})"


def is_not_sent_yet(parameter: str, name: str) -> str:
    """The note of a server that was asked about a job whose model or data it does not have yet."""
    return f"{parameter}: {name} is checked when it has been sent"


def not_sent(folder: Path) -> list[str]:
    """The names in a model's folder that are not sent, subfolders with a '/' at the end. Hidden ones are left out."""
    parts = {path.parent for path in _parts(folder)}
    others = [
        path
        for path in sorted(folder.iterdir())
        if not (path.name.startswith(".") or path in parts or _is_wanted(path))
    ]
    return [f"{path.name}/" if path.is_dir() else path.name for path in others]


def paths_of(kind: Kind, path: Path) -> list[Path]:
    """The files that are sent of a model's folder, or the data file.

    Raises:
        InvalidReference: there is no such folder or file, or one of its files is a link, or no regular file.
    """
    if kind is Kind.DATA:
        found = [path]
    elif path.is_dir():
        found = sorted([*(one for one in path.iterdir() if _is_wanted(one)), *_parts(path)])
    else:
        raise InvalidReference(f"the model must be a folder, got {str(path)!r}, where there is none")
    for one in found:
        try:
            mode = one.lstat().st_mode
        except OSError as error:
            raise InvalidReference(f"{str(one)!r} cannot be read ({error.strerror})") from None
        if stat.S_ISLNK(mode):
            raise InvalidReference(f"{str(one)!r} must be a regular file, got a link; copy what it leads to (cp -L)")
        if not stat.S_ISREG(mode):
            raise InvalidReference(f"{str(one)!r} must be a regular file, got another kind of file")
    return found


def describe(kind: Kind, path: Path, on_bytes: Callable[[int], None] = lambda read: None) -> list[File]:
    """Reads what is sent of a model's folder, or a data file, in the order of the names.

    Args:
        on_bytes: called with the number of bytes after each chunk that was read.

    Raises:
        InvalidReference: as `paths_of` and `check_files`.
    """
    files = []
    root = path if kind is Kind.MODEL else path.parent
    with ThreadPoolExecutor(_HASHERS) as hashers:
        for one in paths_of(kind, path):
            size, hashes = 0, list[Future[str]]()
            try:
                for chunk in _chunks(one):
                    size += len(chunk)
                    hashes.append(hashers.submit(_sha256, chunk))
                    if len(hashes) >= _HASHERS:
                        hashes[-_HASHERS].result()  # no more than these are in memory
                    on_bytes(len(chunk))
            except OSError as error:
                raise InvalidReference(f"{str(one)!r} cannot be read ({error.strerror})") from None
            name = one.relative_to(root).as_posix()
            files.append(File(name, size, tuple(future.result() for future in hashes)))
    check_files(kind, files)
    return files


def _sha256(chunk: bytes) -> str:
    return hashlib.sha256(chunk).hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _is_wanted(path: Path) -> bool:
    return is_sent(path.name) and not path.name.startswith(".") and not (path.is_dir() and not path.is_symlink())


def _parts(folder: Path) -> list[Path]:
    """The files of parts of a model, each in a folder of its own."""
    found = folder.glob("[0-9]*_*/config.json")
    return [path for path in found if _PART.fullmatch(path.relative_to(folder).as_posix())]
