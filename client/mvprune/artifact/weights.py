"""The weights file: safetensors, with a pair of positions and values for every sparse tensor.

The bytes are told in docs/artifact-format.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mvprune.artifact.coding import decode_positions, encode_positions
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import DTYPES, METADATA_KEY, VERSION, Entry, Header, is_name, read_header

Array = npt.NDArray[Any]

_CODES = {dtype: code for code, dtype in DTYPES.items()}

MAX_ELEMENTS = 2**34
"""Elements of all sparse tensors of one file together: zeros cost a hostile file nothing, and a reader memory."""


def write_weights(path: Path, tensors: Mapping[str, Array], sparse: Collection[str]) -> None:
    """Writes tensors to one file: floats as fp16, integers and booleans as they are.

    Args:
        path: is replaced; a crash leaves a part of a file, so write where nobody looks and rename.
        tensors: any shapes. Entries that are the same memory seen the same way (tied weights) are stored once.
        sparse: names of float tensors of which only the non-zeros are stored.

    Raises:
        ArtifactError: a name is unknown or not allowed, a dtype has no place in the format, or a float is not finite
            or not exactly an fp16 number: nothing is rounded here (see `round_values`).
    """
    for name in sparse:
        if name not in tensors:
            raise ArtifactError(f"{path.name}: sparse tensor {name!r} is not among the tensors")
    entries: dict[str, Array] = {}
    described: dict[str, dict[str, Any]] = {}
    aliases: dict[str, str] = {}
    for names in _aliased(tensors):
        first, array = names[0], tensors[names[0]]
        aliases.update(dict.fromkeys(names[1:], first))
        try:
            if any(name in sparse for name in names):
                coding, entries[f"{first}::positions"], entries[f"{first}::values"] = _encode(array)
                described[first] = {"coding": coding, "shape": list(array.shape)}
            else:
                entries[first] = _dense(array)
        except ArtifactError as error:
            raise ArtifactError(f"{path.name}: tensor {first!r}: {error}") from None
    metadata = {"aliases": aliases, "sparse": described, "version": VERSION}
    text = json.dumps(metadata, sort_keys=True, separators=(",", ":"))
    _write_entries(path, entries, {METADATA_KEY: text})


def read_weights(path: Path) -> dict[str, Array]:
    """Reads what `write_weights` wrote: every tensor dense, floats as fp16, tied names as the same array.

    Safe on any bytes: nothing in the file is executed, and memory is bounded by the size of the file, but for the
    zeros of the sparse tensors (at most `MAX_ELEMENTS`, which the system provides when they are touched) and, while
    one is unpacked, a few % of their number in bytes.

    Raises:
        ArtifactError: the file is not a valid weights file of a known version.
    """
    try:
        with path.open("rb") as file:
            header = read_header(file, path.name)
            tensors = _read_tensors(file, header, path.name)
    except OSError as error:
        raise ArtifactError(f"{path.name}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise ArtifactError(f"{path.name}: unpacked, it does not fit into memory") from error
    return tensors | {alias: tensors[target] for alias, target in header.aliases.items()}


def _write_entries(path: Path, entries: dict[str, Array], metadata: dict[str, str]) -> None:
    """A safetensors file. Large items come first and the header is padded, so that all data is aligned."""
    header: dict[str, Any] = {"__metadata__": metadata}
    names = sorted(entries, key=lambda name: (-entries[name].itemsize, name))
    end = 0
    for name in names:
        array, begin = entries[name], end
        end += array.nbytes
        header[name] = {"dtype": _CODES[array.dtype.str], "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            file.write(entries[name].data)


def _read_tensors(file: BufferedReader, header: Header, where: str) -> dict[str, Array]:
    if sum(math.prod(tensor.shape) for tensor in header.sparse.values()) > MAX_ELEMENTS:
        raise ArtifactError(f"{where}: the sparse tensors have more than {MAX_ELEMENTS} elements")
    tensors: dict[str, Array] = {}
    for name, entry in header.dense.items():
        tensors[name] = _read_entry(file, header, entry, where, name)
    for name, tensor in header.sparse.items():
        frame = _read_entry(file, header, tensor.positions, where, name)
        values = _read_entry(file, header, tensor.values, where, name)
        elements = math.prod(tensor.shape)
        try:
            if np.any(values == 0):
                raise ArtifactError("a stored value is zero")
            positions = decode_positions(tensor.coding, frame, len(values), elements)
        except ArtifactError as error:
            raise ArtifactError(f"{where}: tensor {name!r}: {error}") from error
        flat = np.zeros(elements, np.float16)
        flat[positions] = values
        tensors[name] = flat.reshape(tensor.shape)
    return tensors


def _read_entry(file: BufferedReader, header: Header, entry: Entry, where: str, name: str) -> Array:
    file.seek(header.data_start + entry.begin)
    dtype = np.dtype(DTYPES[entry.dtype])
    content = bytearray(entry.end - entry.begin)
    if file.readinto(content) != len(content):
        raise ArtifactError(f"{where}: tensor {name!r}: the file ends before its data")
    array = np.frombuffer(content, dtype).reshape(entry.shape)
    if entry.dtype == "F16" and not np.isfinite(array).all():
        raise ArtifactError(f"{where}: tensor {name!r}: holds a value that is not finite")
    if entry.dtype == "BOOL" and np.any(array.view(np.uint8) > 1):
        raise ArtifactError(f"{where}: tensor {name!r}: holds a boolean that is neither 0 nor 1")
    return array


def _aliased(tensors: Mapping[str, Array]) -> list[list[str]]:
    """Groups the names, sorted, by the memory they show."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for name in sorted(tensors):
        if not is_name(name):
            raise ArtifactError(f"tensor name {name!r} is empty or holds '::' or a character that cannot be printed")
        array = tensors[name]
        view = array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str
        groups.setdefault(view if array.size else (name,), []).append(name)
    return list(groups.values())


def _encode(array: Array) -> tuple[str, Array, Array]:
    if array.dtype.kind != "f":
        raise ArtifactError(f"only floats can be stored sparse, not {array.dtype}")
    flat = array.reshape(-1)
    positions = np.flatnonzero(flat != 0)
    coding, frame = encode_positions(positions, array.size)
    return coding, frame, _half(flat[positions])


def _dense(array: Array) -> Array:
    if array.dtype.kind == "f":
        return _half(array)
    if array.dtype.str not in _CODES:
        raise ArtifactError(f"dtype {array.dtype} has no place in the format")
    return np.asarray(array, order="C")


def _half(array: Array) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = np.asarray(array, "<f2", order="C")
    if not np.isfinite(half).all():
        raise ArtifactError("holds a value that is not finite, or too large for fp16")
    if not np.array_equal(half, array):
        raise ArtifactError("holds a value that fp16 cannot represent: call round_values first")
    return half
