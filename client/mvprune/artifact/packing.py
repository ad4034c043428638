"""A tensor in parts: which of its elements or rows are stored, their values, and the scales of whole numbers.

layout  positions of            values
gap     non-zero elements       those elements, in row-major order
mask    non-zero elements       the same
gap4    blocks of four          the elements of the blocks that have a non-zero, in row-major order
mask4   blocks of four          the same
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

from mvprune.artifact.coding import GAP, decode_positions, decode_stored, elements_of, encode_positions, find_blocks
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.header import BLOCK, BLOCK_LAYOUTS, FULL, GROUP, OF_BASE, ROWS, SPARSE_LAYOUTS, PackedTensor
from mvprune.artifact.values import (
    KINDS,
    Counts,
    Scales,
    Values,
    check_exact,
    decode_values,
    encode_values,
    from_bfloat16,
    pack,
    row_counts,
    scaled_counts,
    unpack,
)

Array = npt.NDArray[Any]

_ZERO_ROWS = 1 / 8  # from this fraction on, zero rows are left out
_CHECKED = 1 << 18  # numbers in work at a time


@dataclass(frozen=True)
class Parts:
    """The description of a packed tensor, and its parts: name → dtype of safetensors and content."""

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
    nonzero: dict[str, int] = {}
    if pruned:
        positions = np.flatnonzero(flat != 0)
        layout, frame, positions, nonzero = _sparse(positions, array)
        values, counts = flat[positions] + flat.dtype.type(0), _counts(positions, array.shape)  # -0 becomes 0
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
    description = {"count": len(values), "layout": layout, "shape": list(array.shape), "values": kind.dtype}
    return Parts(description | nonzero, entries)


def pack_mask(array: Array) -> Parts:
    """An array whose non-zeros are those of a base model's tensor → its parts: their positions."""
    positions = np.flatnonzero(array)
    layout, frame, positions, nonzero = _sparse(positions, array, whole=True)
    description = {"count": len(positions), "layout": layout, "shape": list(array.shape), "values": OF_BASE}
    return Parts(description | nonzero, {"positions": ("U8", frame)})


def _sparse(positions: Array, array: Array, *, whole: bool = False) -> tuple[str, Array, Array, dict[str, int]]:
    """The layout of non-zeros, the frame of their positions, those of what is stored, and what describes blocks.

    Args:
        positions: of the non-zeros, ascending.
        array: the tensor.
        whole: whether blocks may have no zeros, because the values are not those of the tensor.
    """
    blocks = find_blocks(positions, int(np.prod(array.shape[1:])), array.size)
    if blocks is None or (whole and BLOCK * len(blocks) > len(positions)):
        return *encode_positions(positions, array.size), positions, {}
    coding, frame = encode_positions(blocks, array.size // BLOCK)
    return f"{coding}{BLOCK}", frame, elements_of(blocks), {"nonzero": len(positions)}


@dataclass(frozen=True)
class Unpacked:
    """A tensor as it is stored, decompressed: what is not stored need not be made. `array` makes the whole tensor.

    Attributes:
        shape: of the tensor.
        numbers: what is stored; of `rows` and `full` all elements of the stored rows.
        kind: how floats are stored; None: the numbers are the elements.
        layout: see above.
        positions: of the numbers, or of the stored rows; None: all rows are stored.
        scales: of the stored rows, or of groups of them in int4, as bfloat16 bits; None for other kinds.
    """

    shape: tuple[int, ...]
    numbers: Array
    kind: Values | None = None
    layout: str = FULL
    positions: Array | None = None
    scales: Scales | None = None

    @property
    def nonzeros(self) -> int:
        """At least as many elements as differ from zero."""
        return int(np.count_nonzero(self.numbers))

    def array(self) -> Array:
        """All elements: fp16 where that is stored, else floats as fp32.

        Raises:
            ArtifactError: a number or scale is not allowed.
        """
        if self.positions is None:
            return self._decoded().reshape(self.shape)
        if self.layout == ROWS:
            values = self._decoded()
            array = np.zeros(self.shape, values.dtype)
            array[self.positions] = values.reshape(len(self.positions), *self.shape[1:])
            return array
        positions, values = self.elements()
        array = np.zeros(int(np.prod(self.shape, dtype=np.int64)), values.dtype)
        array[positions] = values
        return array.reshape(self.shape)

    def elements(self) -> tuple[Array, Array]:
        """The elements that differ from zero: their positions in row-major order, ascending, and their values.

        Raises:
            ArtifactError: as `array`.
        """
        if self.layout in SPARSE_LAYOUTS and self.positions is not None:
            values = self._decoded()
            filled = values != 0
            if self.layout in BLOCK_LAYOUTS:
                if not filled.reshape(-1, BLOCK).any(1).all():
                    raise ArtifactError("a stored block must have a value that is not zero")
                return self.positions[filled], values[filled]
            if not filled.all():
                raise ArtifactError("stored values must not be zero")
            return self.positions, values
        flat = self.array().reshape(-1)
        positions = np.flatnonzero(flat)
        return positions, flat[positions]

    def rows(self) -> tuple[Array, npt.NDArray[np.float32] | None]:
        """The matrix as numbers, (rows, columns), and the scales of int8, (rows,), or of int4, (rows, groups), in fp32.

        An element is its number, times its scale where there are scales; a group is of 64 columns. Numbers are not
        converted: fp16 stays fp16, and int4 is in int8.

        Raises:
            ArtifactError: as `array`, or it is no matrix that is stored by rows.
        """
        if self.kind is None or self.layout in SPARSE_LAYOUTS or len(self.shape) != 2:
            raise ArtifactError("a tensor must be a matrix of floats that is stored by rows")
        stored, columns = self.shape[0] if self.positions is None else len(self.positions), self.shape[1]
        numbers = self.numbers.reshape(stored, columns)
        by_row = (stored, -(-columns // GROUP)) if self.kind is Values.INT4 else (stored,)
        scales = None if self.scales is None else self.scales.reshape(by_row)
        step = max(1, _CHECKED // max(1, columns))
        for first in range(0, stored, step):  # a part at a time: fp32 takes four times the memory of int8
            part = slice(first, first + step)
            some, of_some = numbers[part], None if scales is None else scales[part].reshape(-1)
            decode_values(some.reshape(-1), of_some, scaled_counts(some.shape, self.kind), self.kind)
        factors = None if scales is None else from_bfloat16(scales)
        if self.kind is Values.BF16:
            numbers = from_bfloat16(numbers)
        if self.positions is None:
            return numbers, factors
        array = np.zeros(self.shape, numbers.dtype)
        array[self.positions] = numbers
        if factors is None:
            return array, None
        placed = np.zeros((len(array), *factors.shape[1:]), np.float32)
        placed[self.positions] = factors
        return array, placed

    def _decoded(self) -> Array:
        if self.kind is None:
            return self.numbers.reshape(-1)
        counts = None
        if self.scales is not None:  # a tensor may have many more rows than bytes in the file
            if self.layout in SPARSE_LAYOUTS and self.positions is not None:
                counts = _counts(self.positions, self.shape)
            else:
                stored = self.shape if self.positions is None else (len(self.positions), *self.shape[1:])
                counts = scaled_counts(stored, self.kind)
        return decode_values(self.numbers.reshape(-1), self.scales, counts, self.kind)


def unpack_parts(tensor: PackedTensor, parts: Mapping[str, Array], base: Array | None = None) -> Unpacked:
    """The inverse of `pack_tensor` and `pack_mask`, for any bytes.

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
        positions = decode_stored(tensor.layout, parts["positions"], tensor.count, elements)
        kept = base.reshape(-1)[positions]
        _check_nonzeros(tensor, kept)
        return Unpacked(tensor.shape, kept, None, tensor.layout, positions)
    kind, numbers, found = KINDS[tensor.dtype], parts["values"], None
    if tensor.values is not None and tensor.values.dtype == "U8":
        numbers = unpack(numbers, tensor.count, kind)
    scales = parts.get("scales")
    if scales is not None and tensor.scales is not None and tensor.scales.dtype == "U8":
        scales = unpack(scales, tensor.scale_count, Values.BF16, "scales")
    if tensor.layout == ROWS:
        found = decode_positions(GAP, parts["positions"], tensor.stored_rows, tensor.shape[0])
    elif tensor.layout != FULL:
        found = decode_stored(tensor.layout, parts["positions"], tensor.count, elements)
    _check_nonzeros(tensor, numbers)
    return Unpacked(tensor.shape, numbers, kind, tensor.layout, found, scales)


def _check_nonzeros(tensor: PackedTensor, numbers: Array) -> None:
    if tensor.layout in BLOCK_LAYOUTS and (stored := np.count_nonzero(numbers)) != tensor.nonzero:
        raise ArtifactError(f"the values must have {tensor.nonzero} non-zeros, as the header says, got {stored}")


def _packed(numbers: Array, dtype: str) -> tuple[str, Array]:
    """An entry: the frame of the numbers, or the numbers where that is not smaller."""
    frame = pack(numbers)
    return ("U8", frame) if frame is not numbers else (dtype, numbers)


def _counts(positions: npt.NDArray[Any], shape: tuple[int, ...]) -> Counts:
    """How many of the ascending positions lie in every row."""
    rows = row_counts(shape)
    return np.diff(np.searchsorted(positions, np.concatenate([[0], np.cumsum(rows)])))
