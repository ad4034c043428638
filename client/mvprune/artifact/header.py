"""The header of a weights file, read without trust.

The safetensors library lets the last of two equal JSON keys win and accepts more than the format has, so the header is
checked here, and the tensors are read by the offsets that passed.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import open_file
from mvprune.common.strictjson import InvalidJson, parse_json

VERSION = 3
METADATA_KEY = "mvprune"
DTYPES = {
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # numpy has none: its bits
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
}
FULL = "full"
ROWS = "rows"
BLOCK = 4
BLOCK_LAYOUTS = ("gap4", "mask4")
"""Of non-zeros in blocks of four: the positions are those of the blocks, and a block may have zeros."""
SPARSE_LAYOUTS = ("gap", "mask", *BLOCK_LAYOUTS)
LAYOUTS = (*SPARSE_LAYOUTS, ROWS, FULL)
GROUP = 64
"""Numbers of a row of a full int4 tensor that a scale is for, at most."""
MAX_RATIO = 255
"""The largest unpacked size of a frame of values or scales, over its size: it bounds the memory that a small file can
take."""
VALUE_DTYPES = ("F32", "F16", "BF16", "I8", "I4")
SCALED_DTYPES = MappingProxyType({"I8": 0, "I4": GROUP})
"""Dtypes of values with scales → numbers of a row of a full tensor that a scale is for; 0: the whole row."""
OF_BASE = "BASE"  # in place of a dtype: the values are the base model's

SHA256 = re.compile(r"[0-9a-f]{64}")

_MAX_HEADER = 16 << 20  # about 100,000 tensors
_MAX_NAME = 256  # characters
# Zeros cost a hostile file nothing, and a reader memory: what a file unpacks to is bounded by its size, with room for
# one weight kept of thousands.
ELEMENTS_ALWAYS = 2**28
_ELEMENTS_PER_BYTE = 2**10
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
class PackedTensor:
    """A tensor in parts: which of its elements or rows are stored, their values, and the scales of whole numbers.

    `values` is None if `dtype` is `OF_BASE`: the file has only the positions.
    """

    layout: str
    shape: tuple[int, ...]
    dtype: str
    count: int
    """Values that are stored."""
    nonzero: int
    """Of these, those that are not zero."""
    positions: Entry | None
    values: Entry | None
    scales: Entry | None

    @property
    def row(self) -> int:
        """Elements of one row."""
        return math.prod(self.shape[1:])

    @property
    def stored_rows(self) -> int:
        """Rows of which values are stored, or may be."""
        if self.layout == ROWS:
            return self.count // self.row if self.row else 0
        return self.shape[0] if self.shape else 1

    @property
    def scale_count(self) -> int:
        """Scales of values that have such."""
        group = SCALED_DTYPES[self.dtype]
        return self.stored_rows * (-(-self.row // group) if group and self.layout in (ROWS, FULL) else 1)


@dataclass(frozen=True)
class BaseTensor:
    """A tensor of the base model, under `name` there. The file has nothing of it, or the positions of what is kept."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Header:
    """The tensors of a file; every offset lies within it."""

    data_start: int
    plain: dict[str, Entry]
    packed: dict[str, PackedTensor]
    base: dict[str, BaseTensor]
    aliases: dict[str, str]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor."""
        stored = {name: tensor.shape for part in (self.plain, self.packed, self.base) for name, tensor in part.items()}
        return stored | {alias: stored[target] for alias, target in self.aliases.items()}

    def elements(self, *, of_base: bool) -> int:
        """Of the tensors under all of their names, aliases too: of the base's, or of those in the file. An axis of
        length 0 counts as 1: rows are counted one by one even where they are empty."""
        counted = self.base if of_base else {**self.plain, **self.packed}
        return sum(
            math.prod(max(length, 1) for length in shape)
            for name, shape in self.shapes().items()
            if self.aliases.get(name, name) in counted
        )

    @property
    def whole_base(self) -> list[str]:
        """Names of the tensors that are the base's as they are."""
        return [name for name in self.base if name not in self.packed]

    def names(self) -> dict[str, list[str]]:
        """Every stored tensor's name with all names that it has: itself and its aliases."""
        names = {name: [name] for part in (self.plain, self.packed, self.base) for name in part}
        for alias, target in self.aliases.items():
            names[target].append(alias)
        return names


class _Invalid(Exception):
    """Carries the reason to `read_header`, which adds the file."""


NAME_RULE = f"1 to {_MAX_NAME} printable characters without '::', '/' and '\\'"


def is_name(name: str) -> bool:
    """Whether a tensor may have this name: '::' is kept for the parts of a packed tensor, and exports name files so."""
    return 0 < len(name) <= _MAX_NAME and name.isprintable() and "::" not in name and not set(name) & set("/\\")


def open_header(path: Path) -> Header:
    """The content of a weights file, without its data.

    Raises:
        ArtifactError: the file is not a valid weights file of a known version.
    """
    try:
        with open_file(path) as file:
            return read_header(file, path.name)
    except OSError as error:
        raise ArtifactError(f"{path.name}: cannot be read ({error.strerror or error})") from error


def read_header(file: BufferedReader, where: str) -> Header:
    """Reads and checks the header of an open weights file.

    Raises:
        ArtifactError: with `where` as the name of the file.
    """
    start, entries, metadata = read_entries(file, where)
    try:
        header = _assemble(start, entries, _exactly(metadata, {METADATA_KEY: str}, "__metadata__")[METADATA_KEY])
        _check_elements(header, os.fstat(file.fileno()).st_size)
        return header
    except (_Invalid, InvalidJson) as error:
        raise ArtifactError(f"{where}: {error}") from error


def read_entries(file: BufferedReader, where: str) -> tuple[int, dict[str, Entry], object]:
    """Reads and checks the header of an open safetensors file: where its data starts, its entries, its metadata.

    Raises:
        ArtifactError: with `where` as the name of the file.
    """
    try:
        size = os.fstat(file.fileno()).st_size
        prefix = file.read(8)
        length = int.from_bytes(prefix, "little")
        if len(prefix) < 8 or 8 + length > size:
            raise _Invalid("the file must contain the header, got a shorter file")
        if length > _MAX_HEADER:
            raise _Invalid(f"the header must have at most {_MAX_HEADER} bytes, got {length}")
        fields = _object(parse_json(file.read(length)), "header")
        metadata = fields.pop("__metadata__", {})
        entries = {name: _entry(value, name) for name, value in fields.items()}
        _check_layout(entries, size - 8 - length)
    except (_Invalid, InvalidJson) as error:
        raise ArtifactError(f"{where}: {error}") from error
    return 8 + length, entries, metadata


def _assemble(data_start: int, entries: dict[str, Entry], text: str) -> Header:
    metadata = _object(parse_json(text.encode(errors="surrogatepass")), METADATA_KEY)
    version = metadata.get("version")
    if type(version) is not int or version != VERSION:
        raise _Invalid(f"version must be {VERSION}, got {_shown(version)}")
    _exactly(metadata, {"aliases": dict, "base": dict, "packed": dict, "version": int}, METADATA_KEY)
    packed = {name: _packed(name, value, entries) for name, value in metadata["packed"].items()}
    base = {name: _base(name, value) for name, value in metadata["base"].items()}
    for name in [*entries, *packed, *base, *metadata["aliases"]]:
        if not is_name(name):
            raise _Invalid(f"names of tensors must be {NAME_RULE}, or parts of a packed tensor, got {_shown(name)}")
    known = {*entries, *packed, *base}
    for name in known:
        of_base = name in packed and packed[name].dtype == OF_BASE
        if (name in entries) + (name in packed and not of_base) + (name in base) > 1:
            raise _Invalid(f"tensor {_shown(name)}: must be stored once, got twice")
        if of_base and (name not in base or base[name].shape != packed[name].shape):
            raise _Invalid(f"tensor {_shown(name)}: must be in base with its shape, as its values are {OF_BASE}")
    for alias, target in metadata["aliases"].items():
        if alias in known or type(target) is not str or target not in known:
            raise _Invalid(f"aliases must be new names of stored tensors, got {_shown(alias)} of {_shown(target)}")
    return Header(data_start, entries, packed, base, metadata["aliases"])


def _packed(name: str, value: object, entries: dict[str, Entry]) -> PackedTensor:
    """Takes the parts of a packed tensor out of the entries."""
    where = f"tensor {_shown(name)}"
    wanted = {"count": int, "layout": str, "shape": list, "values": str}
    in_blocks = isinstance(value, dict) and value.get("layout") in BLOCK_LAYOUTS
    fields = _exactly(value, wanted | ({"nonzero": int} if in_blocks else {}), where)
    layout, count, dtype = fields["layout"], fields["count"], fields["values"]
    shape = _shape(fields["shape"], where)
    of_base = dtype == OF_BASE
    if layout not in LAYOUTS or not (of_base or dtype in VALUE_DTYPES):
        raise _Invalid(
            f"{where}: layout must be one of {', '.join(LAYOUTS)} and values one of "
            f"{', '.join((*VALUE_DTYPES, OF_BASE))}, got {_shown(layout)} and {_shown(dtype)}"
        )
    if not shape and (layout == ROWS or dtype in SCALED_DTYPES):
        raise _Invalid(
            f"{where}: the shape must have an axis for {_shown(layout)} and {_shown(dtype)}, got {_shown(list(shape))}"
        )
    positions = entries.pop(f"{name}::positions", None)
    values = entries.pop(f"{name}::values", None)
    scales = entries.pop(f"{name}::scales", None)
    if of_base and layout not in SPARSE_LAYOUTS:
        raise _Invalid(f"{where}: layout must be one of {', '.join(SPARSE_LAYOUTS)} for {OF_BASE}, got {layout}")
    if (
        (values is None) != of_base
        or (positions is None) != (layout == FULL)
        or (scales is None) != (dtype not in SCALED_DTYPES)
    ):
        raise _Invalid(
            f"{where}: a packed tensor must have ::values unless they are {OF_BASE}, ::positions unless full, and "
            f"::scales where they are {' or '.join(SCALED_DTYPES)}"
        )
    tensor = PackedTensor(layout, shape, dtype, count, fields.get("nonzero", count), positions, values, scales)
    elements = math.prod(shape)
    if in_blocks and (count % BLOCK or tensor.row % BLOCK or not count <= BLOCK * tensor.nonzero <= BLOCK * count):
        raise _Invalid(
            f"{where}: blocks must have {BLOCK} elements of a row, of which at least one is not zero, got {count} "
            f"values with {tensor.nonzero} non-zeros in rows of {tensor.row}"
        )
    whole = tensor.row if layout == ROWS else 1
    if not 0 <= count <= elements or (layout == FULL and count != elements) or (whole and count % whole):
        raise _Invalid(f"{where}: count must fit the shape {_shown(list(shape))}, got {count}")
    plain = "I8" if dtype == "I4" else dtype  # a number of four bits is a byte before it is packed
    for part, allowed in ((positions, ("U8",)), (values, (plain, "U8")), (scales, ("BF16", "U8"))):
        if part is not None and (part.dtype not in allowed or len(part.shape) != 1):
            raise _Invalid(
                f"{where}: parts must be {' or '.join(allowed)} with one axis, got {part.dtype} {list(part.shape)}"
            )
    if values is not None and values.dtype == plain and values.shape != (count,):
        raise _Invalid(f"{where}: ::values must have {count} values, got {values.shape[0]}")
    # Before anything is unpacked: work and memory are proportional to the rows, which cost a file nothing otherwise.
    if scales is not None and (
        scales.shape != (tensor.scale_count,)
        if scales.dtype == "BF16"
        else _ITEM_BYTES["BF16"] * tensor.scale_count > MAX_RATIO * scales.shape[0]
    ):
        raise _Invalid(
            f"{where}: ::scales must have {tensor.scale_count} scales, or a frame large enough for them, got "
            f"{list(scales.shape)}"
        )
    return tensor


def _base(name: str, value: object) -> BaseTensor:
    where = f"tensor {_shown(name)}"
    fields = _exactly(value, {"dtype": str, "name": str, "sha256": str, "shape": list}, where)
    if fields["dtype"] not in VALUE_DTYPES[:3] or not SHA256.fullmatch(fields["sha256"]):
        raise _Invalid(
            f"{where}: a base tensor must have a dtype of {', '.join(VALUE_DTYPES[:3])} and a SHA-256 of 64 hex digits"
        )
    return BaseTensor(fields["name"], fields["dtype"], _shape(fields["shape"], where), fields["sha256"])


def _entry(value: object, name: str) -> Entry:
    where = f"tensor {_shown(name)}"
    fields = _exactly(value, {"dtype": str, "shape": list, "data_offsets": list}, where)
    if fields["dtype"] not in DTYPES:
        raise _Invalid(f"{where}: dtype must be one of {', '.join(DTYPES)}, got {_shown(fields['dtype'])}")
    shape, offsets = _shape(fields["shape"], where), fields["data_offsets"]
    if len(offsets) != 2 or not all(type(offset) is int and offset >= 0 for offset in offsets):
        raise _Invalid(f"{where}: data_offsets must be two whole numbers of at least 0, got {_shown(offsets)}")
    begin, end = offsets
    if end - begin != math.prod(shape) * _ITEM_BYTES[fields["dtype"]]:
        raise _Invalid(f"{where}: data_offsets must span the bytes of shape and dtype, got {end - begin} bytes")
    return Entry(fields["dtype"], shape, begin, end)


def _shape(value: list[Any], where: str) -> tuple[int, ...]:
    if len(value) > _MAX_DIMENSIONS or not all(type(length) is int and length >= 0 for length in value):
        raise _Invalid(
            f"{where}: shape must be at most {_MAX_DIMENSIONS} whole numbers of at least 0, got {_shown(value)}"
        )
    if math.prod(max(length, 1) for length in value) >= 2**60:
        raise _Invalid(f"{where}: shape must have less than 2^60 elements, got {_shown(value)}")
    return tuple(value)


def _check_elements(header: Header, size: int) -> None:
    allowed = max(ELEMENTS_ALWAYS, _ELEMENTS_PER_BYTE * size)
    elements = header.elements(of_base=False)
    if elements > allowed:
        raise _Invalid(f"the tensors must have at most {allowed} elements in a file of {size} bytes, got {elements}")


def _check_layout(entries: dict[str, Entry], size: int) -> None:
    """The entries must fill the data section without gaps or overlaps."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != end:
            raise _Invalid(
                f"tensor {_shown(name)}: its data must start at {end}, where the one before ends, got {entry.begin}"
            )
        end = entry.end
    if end != size:
        raise _Invalid(f"the tensors must take all {size} bytes of the file, got {end}")


def _exactly(value: object, fields: dict[str, type], where: str) -> dict[str, Any]:
    found = _object(value, where)
    if found.keys() != fields.keys() or any(type(found[key]) is not kind for key, kind in fields.items()):
        wanted = ", ".join(f"{key} ({kind.__name__})" for key, kind in fields.items())
        raise _Invalid(f"{where}: must have exactly the fields {wanted}")
    return found


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Invalid(f"{where}: must be a JSON object")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
