"""A tensor in parts: which of its elements or rows are stored, their values, and the scales of whole numbers.

layout  positions of            values
gap     non-zero elements       those elements, in row-major order
mask    non-zero elements       the same
rows    rows that are not zero  all elements of those rows (an embedding trimmed to a vocabulary)
full    -                       all elements

Of a tensor whose kept elements are the base model's, only the positions are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mvprune.artifact.coding import GAP, decode_positions, encode_positions
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import FULL, OF_BASE, ROWS, PackedTensor
from mvprune.artifact.values import (
    KINDS,
    Counts,
    Values,
    check_exact,
    decode_values,
    encode_values,
    pack,
    row_counts,
    scaled_counts,
    unpack,
)

Array = npt.NDArray[Any]

_ZERO_ROWS = 1 / 8  # from this fraction on, zero rows are left out


@dataclass(frozen=True)
class Parts:
    """What describes a packed tensor, and its parts: name → dtype of safetensors and content."""

    description: dict[str, Any]
    entries: dict[str, tuple[str, Array]]


def pack_tensor(array: Array, kind: Values, *, pruned: bool) -> Parts:
    """An array of floats → its parts.

    Args:
        array: any shape; at least 2 axes unless pruned.
        kind: how its values are stored.
        pruned: only the non-zeros are stored.

    Raises:
        ArtifactError: a value is not finite or not exactly as it would be read, or the array holds no floats.
    """
    if array.dtype.kind != "f":
        raise ArtifactError(f"a sparse tensor must be of floats, got {array.dtype}")
    flat = array.reshape(-1)
    layout, values, counts = FULL, flat, scaled_counts(array.shape, kind)
    entries: dict[str, tuple[str, Array]] = {}
    if pruned:
        positions = np.flatnonzero(flat != 0)
        values, counts = flat[positions], _counts(positions, array.shape)
        layout, frame = encode_positions(positions, array.size)
        entries["positions"] = "U8", frame
    elif (filled := np.flatnonzero(array.any(axis=tuple(range(1, array.ndim))))).size <= len(array) * (1 - _ZERO_ROWS):
        layout, values = ROWS, array[filled].reshape(-1)
        counts = scaled_counts((len(filled), *array.shape[1:]), kind)
        _, frame = encode_positions(filled, len(array), GAP)
        entries["positions"] = "U8", frame
    numbers, scales = encode_values(values, counts, kind, sparse=pruned)
    check_exact(numbers, scales, counts, kind, values)
    entries["values"] = _packed(numbers, "I8" if kind.is_scaled else kind.dtype)
    if scales is not None:
        entries["scales"] = _packed(scales, Values.BF16.dtype)
    return Parts({"count": len(values), "layout": layout, "shape": list(array.shape), "values": kind.dtype}, entries)


def pack_mask(array: Array) -> Parts:
    """An array whose non-zeros are those of a base model's tensor → its parts: their positions."""
    positions = np.flatnonzero(array)
    layout, frame = encode_positions(positions, array.size)
    description = {"count": len(positions), "layout": layout, "shape": list(array.shape), "values": OF_BASE}
    return Parts(description, {"positions": ("U8", frame)})


def unpack_tensor(tensor: PackedTensor, parts: Mapping[str, Array], base: Array | None = None) -> Array:
    """The inverse of `pack_tensor` and `pack_mask`, for any bytes: fp16 where that is stored, else fp32.

    Args:
        tensor: what the header says of it.
        parts: those that the file has.
        base: the base model's tensor, of the same shape, if the values are its.

    Raises:
        ArtifactError: the parts do not make the tensor.
    """
    elements = int(np.prod(tensor.shape, dtype=np.int64))
    if tensor.dtype == OF_BASE:
        if base is None:
            raise ArtifactError("base must be given for a tensor of the base model's values, got None")
        positions = decode_positions(tensor.layout, parts["positions"], tensor.count, elements)
        return _placed(base.reshape(-1)[positions], positions, tensor.shape)
    kind, numbers = KINDS[tensor.dtype], parts["values"]
    if tensor.values is not None and tensor.values.dtype == "U8":
        numbers = unpack(numbers, tensor.count, kind)
    scales = parts.get("scales")
    if scales is not None and tensor.scales is not None and tensor.scales.dtype == "U8":
        scales = unpack(scales, tensor.scale_count, Values.BF16, "scales")
    # Only scales need the counts of rows: a tensor may have many more rows than bytes in the file.
    if tensor.layout == FULL:
        counts = None if scales is None else scaled_counts(tensor.shape, kind)
        return decode_values(numbers, scales, counts, kind).reshape(tensor.shape)
    if tensor.layout == ROWS:
        stored = tensor.stored_rows
        filled = decode_positions(GAP, parts["positions"], stored, tensor.shape[0])
        counts = None if scales is None else scaled_counts((stored, *tensor.shape[1:]), kind)
        values = decode_values(numbers, scales, counts, kind)
        array = np.zeros(tensor.shape, values.dtype)
        array[filled] = values.reshape(stored, *tensor.shape[1:])
        return array
    positions = decode_positions(tensor.layout, parts["positions"], tensor.count, elements)
    counts = None if scales is None else _counts(positions, tensor.shape)
    return _placed(decode_values(numbers, scales, counts, kind), positions, tensor.shape)


def _packed(numbers: Array, dtype: str) -> tuple[str, Array]:
    """An entry: the frame of the numbers, or the numbers where that is not smaller."""
    frame = pack(numbers)
    return ("U8", frame) if frame is not numbers else (dtype, numbers)


def _placed(values: Array, positions: Array, shape: tuple[int, ...]) -> Array:
    """An array of zeros but for these values."""
    if not values.all():
        raise ArtifactError("stored values must not be zero")
    array = np.zeros(int(np.prod(shape, dtype=np.int64)), values.dtype)
    array[positions] = values
    return array.reshape(shape)


def _counts(positions: npt.NDArray[Any], shape: tuple[int, ...]) -> Counts:
    """How many of the ascending positions lie in every row."""
    rows = row_counts(shape)
    return np.diff(np.searchsorted(positions, np.concatenate([[0], np.cumsum(rows)])))
