"""The header of a weights file, read without trust.

The safetensors library lets the last of two equal JSON keys win and accepts more than the format has, so the header is
checked here, and the tensors are read by the offsets that passed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.strictjson import InvalidJson, parse_json

VERSION = 1
METADATA_KEY = "mvprune"
DTYPES = {"F16": "<f2", "BOOL": "|b1", "U8": "|u1", "I8": "|i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}

_MAX_HEADER = 16 << 20  # about 100,000 tensors
_MAX_DIMENSIONS = 8
_ITEM_BYTES = {name: int(code[2:]) for name, code in DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """One safetensors entry: `end - begin` bytes from `begin` on in the data section."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class SparseTensor:
    """A tensor of which the file holds the non-zeros: their coded positions and their values, shape (n,)."""

    coding: str
    shape: tuple[int, ...]
    positions: Entry
    values: Entry


@dataclass(frozen=True)
class Header:
    """What a file holds; every offset lies within it."""

    data_start: int
    dense: dict[str, Entry]
    sparse: dict[str, SparseTensor]
    aliases: dict[str, str]


class _Invalid(Exception):
    """Carries the reason to `read_header`, which adds the file."""


def is_name(name: str) -> bool:
    """Whether a tensor may have this name; '::' is kept for the entries of a sparse tensor."""
    return bool(name) and name.isprintable() and "::" not in name


def read_header(file: BufferedReader, where: str) -> Header:
    """Reads and checks the header of an open file.

    Raises:
        ArtifactError: with `where` as the name of the file.
    """
    try:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or 8 + length > size:
            raise _Invalid("the file ends inside its header")
        if length > _MAX_HEADER:
            raise _Invalid(f"the header has {length} bytes, at most {_MAX_HEADER} are allowed")
        fields = _object(parse_json(file.read(length)), "header")
        metadata = _exactly(fields.pop("__metadata__", {}), {METADATA_KEY: str}, "__metadata__")
        entries = {name: _entry(value, name) for name, value in fields.items()}
        _check_layout(entries, size - 8 - length)
        return _assemble(8 + length, entries, metadata[METADATA_KEY])
    except (_Invalid, InvalidJson) as error:
        raise ArtifactError(f"{where}: {error}") from error


def _assemble(data_start: int, entries: dict[str, Entry], text: str) -> Header:
    metadata = _object(parse_json(text.encode(errors="surrogatepass")), METADATA_KEY)
    version = metadata.get("version")
    if type(version) is not int or version != VERSION:
        raise _Invalid(f"version is {_shown(version)}, this reader knows {VERSION}")
    _exactly(metadata, {"aliases": dict, "sparse": dict, "version": int}, METADATA_KEY)
    sparse = {}
    for name, value in metadata["sparse"].items():
        where = f"tensor {_shown(name)}"
        described = _exactly(value, {"coding": str, "shape": list}, where)
        positions = entries.pop(f"{name}::positions", None)
        values = entries.pop(f"{name}::values", None)
        if positions is None or values is None or name in entries:
            raise _Invalid(f"{where}: a sparse tensor is one entry ::positions and one ::values")
        if positions.dtype != "U8" or values.dtype != "F16" or len(positions.shape) != 1 or len(values.shape) != 1:
            raise _Invalid(f"{where}: positions must be U8 and values F16, both with one dimension")
        sparse[name] = SparseTensor(described["coding"], _shape(described["shape"], where), positions, values)
    for name in [*entries, *sparse, *metadata["aliases"]]:
        if not is_name(name):
            raise _Invalid(f"tensor {_shown(name)}: not a tensor's name, nor an entry of a sparse tensor")
    known = entries.keys() | sparse.keys()
    for alias, target in metadata["aliases"].items():
        if alias in known or type(target) is not str or target not in known:
            raise _Invalid(f"alias {_shown(alias)} of {_shown(target)} is not a new name of a stored tensor")
    return Header(data_start, entries, sparse, metadata["aliases"])


def _entry(value: object, name: str) -> Entry:
    where = f"tensor {_shown(name)}"
    fields = _exactly(value, {"dtype": str, "shape": list, "data_offsets": list}, where)
    if fields["dtype"] not in DTYPES:
        raise _Invalid(f"{where}: dtype {_shown(fields['dtype'])} is not one of {', '.join(DTYPES)}")
    shape, offsets = _shape(fields["shape"], where), fields["data_offsets"]
    if len(offsets) != 2 or not all(type(offset) is int and offset >= 0 for offset in offsets):
        raise _Invalid(f"{where}: data_offsets are not two whole numbers from 0 on")
    begin, end = offsets
    if end - begin != math.prod(shape) * _ITEM_BYTES[fields["dtype"]]:
        raise _Invalid(f"{where}: the shape and the dtype do not give the {end - begin} bytes of its data_offsets")
    return Entry(fields["dtype"], shape, begin, end)


def _shape(value: list[Any], where: str) -> tuple[int, ...]:
    if len(value) > _MAX_DIMENSIONS or not all(type(length) is int and length >= 0 for length in value):
        raise _Invalid(f"{where}: the shape is not at most {_MAX_DIMENSIONS} whole numbers from 0 on")
    if math.prod(max(length, 1) for length in value) >= 2**60:
        raise _Invalid(f"{where}: the shape {_shown(value)} overflows")
    return tuple(value)


def _check_layout(entries: dict[str, Entry], size: int) -> None:
    """The entries must fill the data section without gaps or overlaps."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise _Invalid(
                f"tensor {_shown(name)}: its data starts at {entry.begin}, not where the one before ends, {end}"
            )
        end = entry.end
    if end != size:
        raise _Invalid(f"the tensors take {end} bytes, the file holds {size}")


def _exactly(value: object, fields: dict[str, type], where: str) -> dict[str, Any]:
    found = _object(value, where)
    if found.keys() != fields.keys() or any(type(found[key]) is not kind for key, kind in fields.items()):
        wanted = ", ".join(f"{key} ({kind.__name__})" for key, kind in fields.items())
        raise _Invalid(f"{where}: expected exactly the fields {wanted}")
    return found


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Invalid(f"{where}: expected a JSON object")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
