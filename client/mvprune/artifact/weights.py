"""The weights file: safetensors, with large tensors in packed parts: positions, values, scales.

docs/artifact-format.md describes the bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mvprune.artifact.base import Base
from mvprune.artifact.coding import decode_stored
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import open_file
from mvprune.artifact.header import (
    DTYPES,
    METADATA_KEY,
    NAME_RULE,
    SPARSE_LAYOUTS,
    VERSION,
    Entry,
    Header,
    is_name,
    open_header,
    read_header,
)
from mvprune.artifact.packing import Unpacked, pack_mask, pack_tensor, unpack_parts
from mvprune.artifact.parts import REST, is_small, part_of
from mvprune.artifact.values import FLOATS, Values, check_exact, decode_values, encode_values, row_counts

Array = npt.NDArray[Any]
Made = TypeVar("Made")

_CODES = {dtype: code for code, dtype in DTYPES.items() if code != "BF16"}


@dataclass(frozen=True)
class Coding:
    """How floats are stored.

    Attributes:
        values: the kept weights of pruned matrices.
        embeddings: every other matrix.
        others: of these, the small ones: positions, token types, pooler and head; None: as the embeddings.
    """

    values: Values = Values.FP16
    embeddings: Values = Values.FP16
    others: Values | None = None

    def of(self, *names: str, pruned: bool, shape: tuple[int, ...]) -> Values:
        """The coding of a tensor with these names.

        Vectors (biases, norms) are sensitive: never int8 or int4. A head with one output, (1, n) with a bias (1,), has
        the scale of the task's values, which fp16 may not hold: always fp32.
        """
        if pruned:
            return self.values
        if shape[:1] == (1,) and len(shape) <= 2 and part_of(*names) == REST:
            return Values.FP32
        kind = self.others if self.others is not None and is_small(*names) else self.embeddings
        return Values.FP16 if len(shape) < 2 and kind.is_scaled else kind


def write_weights(
    path: Path,
    tensors: Mapping[str, Array],
    sparse: Collection[str],
    coding: Coding = Coding(),
    base: Base | None = None,
) -> None:
    """Writes tensors to one file: floats as `coding` says, integers and booleans as they are.

    Args:
        path: is replaced; a crash leaves a part of a file, so write where nobody looks and rename.
        tensors: any shapes. Entries that are the same memory seen the same way (tied weights) are stored once.
        sparse: names of float tensors of which only the non-zeros are stored.
        coding: how floats are stored.
        base: float tensors that equal one of its are left out. Of a sparse tensor whose non-zeros equal it, only their
            positions are stored.

    Raises:
        ArtifactError: a name is unknown or not allowed, a dtype has no place in the format, or a float is not finite
            or not exactly as it would be read: nothing is rounded here (see `round_values`).
    """
    for name in sparse:
        if name not in tensors:
            raise ArtifactError(f"{path.name}: sparse tensors must be among the tensors, got {name!r}")
    entries: dict[str, tuple[str, Array]] = {}
    packed: dict[str, dict[str, Any]] = {}
    referred: dict[str, dict[str, Any]] = {}
    aliases: dict[str, str] = {}
    for names in tied_names(tensors):
        first, array = names[0], tensors[names[0]]
        aliases.update(dict.fromkeys(names[1:], first))
        pruned = any(name in sparse for name in names)
        kind = coding.of(*names, pruned=pruned, shape=array.shape)
        try:
            same = base.find(first, array, pruned=pruned) if base and array.dtype.kind == "f" else None
            if same is not None:
                referred[first] = asdict(same)
            if same is not None and not pruned:
                continue
            if pruned or (array.dtype.kind == "f" and array.ndim >= 2):
                parts = pack_tensor(array, kind, pruned=pruned) if same is None else pack_mask(array)
                packed[first] = parts.description
                entries |= {f"{first}::{part}": entry for part, entry in parts.entries.items()}
            else:
                entries[first] = _plain(array, kind)
        except ArtifactError as error:
            raise ArtifactError(f"{path.name}: tensor {first!r}: {error}") from None
    metadata = {"aliases": aliases, "base": referred, "packed": packed, "version": VERSION}
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":"))
    _write_entries(path, entries, {METADATA_KEY: text})


def read_weights(path: Path, base: Base | None = None) -> dict[str, Array]:
    """Reads what `write_weights` wrote: every tensor full, tied names as the same array; see `stream_weights`."""
    aliases, tensors = open_header(path).aliases, dict(stream_weights(path, base))
    return tensors | {alias: tensors[target] for alias, target in aliases.items()}


def stream_weights(path: Path, base: Base | None = None) -> Iterator[tuple[str, Array]]:
    """Every tensor with its name, one at a time: fp16 where that is stored, else floats as fp32.

    Those that are the base's as they are come first.

    Safe on any bytes: nothing in the file is executed, and memory is bounded by its size: values are at most 255 times
    as large as what they are packed in, and all elements, zeros included, at most 2^28, or 1,024 for each byte of the
    file.

    Args:
        path: of the file.
        base: the base model, for a file that leaves out what it shares with it.

    Raises:
        ArtifactError: the file is not a valid weights file of a known version, or `base` is not what it refers to.
    """
    return stream_tensors(path, lambda name, tensor: (name, tensor.array()), base)


def stream_tensors(path: Path, use: Callable[[str, Unpacked], Made], base: Base | None = None) -> Iterator[Made]:
    """The result of `use` for every tensor, given its name and its stored form: see `stream_weights`.

    After those that are the base's as they are come those that are not packed, such as biases. What `use` raises as
    ArtifactError gets the name of the tensor.
    """
    try:
        with open_file(path) as file:
            header = read_header(file, path.name)
            yield from _read_tensors(file, header, use, base, path.name)
    except OSError as error:
        raise ArtifactError(f"{path.name}: cannot be read ({error.strerror or error})") from error
    except MemoryError as error:
        raise ArtifactError(f"{path.name}: the unpacked tensors must fit into memory") from error


def stream_positions(path: Path) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Where the stored elements of every sparse tensor are, in row-major order and ascending, with the tensor's name.

    They are its non-zeros, or all elements of the blocks that have such. The base model is not needed: positions are
    never left out.

    Raises:
        ArtifactError: the file is not a valid weights file of a known version.
    """
    try:
        with open_file(path) as file:
            header = read_header(file, path.name)
            for name, tensor in header.packed.items():
                if tensor.layout in SPARSE_LAYOUTS and tensor.positions is not None:
                    frame = _read_entry(file, header, tensor.positions)
                    elements = int(np.prod(tensor.shape, dtype=np.int64))
                    yield name, decode_stored(tensor.layout, frame, tensor.count, elements)
    except OSError as error:
        raise ArtifactError(f"{path.name}: cannot be read ({error.strerror or error})") from error


def tied_names(tensors: Mapping[str, Array]) -> list[list[str]]:
    """The names, sorted, in groups that show the same memory."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in sorted(tensors):
        if not is_name(name):
            raise ArtifactError(f"names of tensors must be {NAME_RULE}, got {name!r:.300}")
        array = tensors[name]
        view = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
        groups.setdefault(view if array.size else (name,), []).append(name)
    return list(groups.values())


def _write_entries(path: Path, entries: dict[str, tuple[str, Array]], metadata: dict[str, str]) -> None:
    """A safetensors file. Large items come first and the header is padded, so that all data is aligned."""
    header: dict[str, Any] = {"__metadata__": metadata}
    names = sorted(entries, key=lambda name: (-entries[name][1].itemsize, name))
    end = 0
    for name in names:
        dtype, array = entries[name]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(entries[name][1].data)


def _plain(array: Array, kind: Values) -> tuple[str, Array]:
    if array.dtype.kind != "f":
        if array.dtype.str not in _CODES:
            raise ArtifactError(f"the dtype must be one of the format's, got {array.dtype}")
        return _CODES[array.dtype.str], np.asarray(array, order="C")
    counts = row_counts(array.shape)
    numbers, scales = encode_values(array.reshape(-1), counts, kind)
    check_exact(numbers, scales, counts, kind, array.reshape(-1))
    return kind.dtype, numbers.reshape(array.shape)


def _read_tensors(
    file: BufferedReader, header: Header, use: Callable[[str, Unpacked], Made], base: Base | None, where: str
) -> Iterator[Made]:
    if header.base and base is None:
        raise ArtifactError(
            f"{where}: base must be given for a delta artifact, as {len(header.base)} tensors are the base model's"
        )
    for name in [*header.whole_base, *header.plain, *header.packed]:
        try:
            yield use(name, _read_tensor(file, header, base, name))
        except ArtifactError as error:
            raise ArtifactError(f"{where}: tensor {name!r}: {error}") from error


def _read_tensor(file: BufferedReader, header: Header, base: Base | None, name: str) -> Unpacked:
    of_base = base.read(header.base[name]) if name in header.base and base is not None else None
    if of_base is not None and name not in header.packed:
        return Unpacked(of_base.shape, of_base)
    if name in header.plain:
        array = _read_plain(file, header, header.plain[name])
        return Unpacked(array.shape, array)
    tensor = header.packed[name]
    parts = {"positions": tensor.positions, "values": tensor.values, "scales": tensor.scales}
    found = {part: _read_entry(file, header, entry) for part, entry in parts.items() if entry is not None}
    return unpack_parts(tensor, found, of_base)


def _read_plain(file: BufferedReader, header: Header, entry: Entry) -> Array:
    array = _read_entry(file, header, entry)
    if entry.dtype in FLOATS:
        return decode_values(array.reshape(-1), None, None, FLOATS[entry.dtype]).reshape(entry.shape)
    if entry.dtype == "BOOL" and np.any(array.view(np.uint8) > 1):
        raise ArtifactError("booleans must be 0 or 1")
    return array


def _read_entry(file: BufferedReader, header: Header, entry: Entry) -> Array:
    file.seek(header.data_start + entry.begin)
    content = bytearray(entry.end - entry.begin)
    if file.readinto(content) != len(content):
        raise ArtifactError("the file must contain the data, got a shorter file")
    return np.frombuffer(content, np.dtype(DTYPES[entry.dtype])).reshape(entry.shape)
