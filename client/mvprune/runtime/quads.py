"""Matrices in int8 for activations in int8. Knows numpy and addresses, not torch; see `kernel`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from mvprune.artifact.values import Values, encode_values, from_bfloat16, rounded
from mvprune.runtime._elements import Elements
from mvprune.runtime._layout import BAND, blocks, check_layout, lay_out
from mvprune.runtime.kernel import Matrix, SparseMatrix

COLUMNS = 512
"""Of a block: those of a token that share a scale; kQuadBlock of kernel.h."""
FILLED = 0.55
"""From this fraction of non-zero quads on, products with all of them are faster."""

_QUADS, _FULL = 5, 6  # kinds of kernel.h
_TOGETHER = 4  # kTogether of kernel.h
_ZERO = 128  # a byte of an activation that is zero


def for_bytes(weight: Elements) -> SparseMatrix:
    """A matrix for activations in int8, as it is the fastest.

    Raises:
        ArtifactError: a value is not finite.
    """
    return Full.pack(weight) if weight.filled_quads() > FILLED else Quads.pack(weight)


def rounded_weight(weight: Elements) -> npt.NDArray[np.float32]:
    """The weight that `for_bytes` multiplies by, dense.

    Raises:
        ArtifactError: a value is not finite.
    """
    whole = np.zeros(weight.shape, np.float32)
    whole[weight.rows, weight.columns] = weight.values
    return rounded(whole, Values.INT8, sparse=weight.filled_quads() <= FILLED)


class Quads(SparseMatrix):
    """A matrix for activations in int8; weights are int8 with per-row scales.

    A *quad* is four columns of a row, from a multiple of four on, of which at least one is not zero. Quads lie as the
    non-zeros of `Packed` do; their four values are stored together.

    For each token and block of 512 columns, the activations x are rounded to q = round(x / s), s = max |x| / 127. Each
    output is the sum over the blocks of s times the exact sum of integers q · w, times the scale of the row. A token
    with NaN or infinity in a block gives NaN where the row has a weight in that block; values below 1e-30 are zero if
    all of the block are. All instruction sets and numbers of threads round alike.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        starts: npt.NDArray[np.int64],
        indices: npt.NDArray[np.uint16],
        numbers: npt.NDArray[np.int8],
        scales: npt.NDArray[np.float32],
        order: npt.NDArray[np.uint8],
    ) -> None:
        """From its parts, checked. `pack` makes one from an array.

        Raises:
            ValueError: the parts do not make a matrix.
        """
        self.rows, self.columns = shape
        self._starts = np.ascontiguousarray(starts, np.int64)
        self._indices = np.ascontiguousarray(indices, np.uint16)
        self._numbers = np.ascontiguousarray(numbers, np.int8)
        self._scales = np.ascontiguousarray(scales, np.float32)
        self._order = np.ascontiguousarray(order, np.uint8)
        self._check()
        sums = np.concatenate([[0], np.cumsum(self._numbers.sum(1, dtype=np.int64))])
        self._offsets = (_ZERO * np.diff(sums[self._starts])).astype(np.int32)
        self._matrix = Matrix(
            self.rows,
            self.columns,
            COLUMNS,
            self._starts.ctypes.data,
            self._order.ctypes.data,
            self._indices.ctypes.data,
            self._numbers.ctypes.data,
            self._scales.ctypes.data,
            self._offsets.ctypes.data,
            _QUADS,
        )

    @classmethod
    def pack(cls, weight: npt.NDArray[np.float32] | Elements) -> Self:
        """The non-zeros of an array, shape (out_features, in_features), rounded to int8 with one scale a row.

        That is exact for a weight that an artifact holds so.

        Raises:
            ArtifactError: a value is not finite.
        """
        weight = weight if isinstance(weight, Elements) else Elements.of(weight)
        (height, width), rows, columns, elements = weight
        counts = np.bincount(rows, minlength=height)
        values, scales = encode_values(elements, counts, Values.INT8, sparse=True)
        assert scales is not None  # noqa: S101 (int8 has them)
        across = -(-width // 4)
        quads, which = np.unique(weight.quads(), return_inverse=True)
        numbers = np.zeros((len(quads), 4), np.int8)
        numbers[which, columns % 4] = values
        quad_rows, quad_columns = np.divmod(quads, max(1, across))
        laid_out = lay_out((height, across), quad_rows, quad_columns, COLUMNS // 4)
        return cls(
            (height, width),
            laid_out.starts,
            laid_out.indices,
            numbers[laid_out.stored],
            from_bfloat16(scales),
            laid_out.order,
        )

    @property
    def nbytes(self) -> int:
        arrays = (self._starts, self._order, self._indices, self._numbers, self._scales, self._offsets)
        return sum(array.nbytes for array in arrays)

    def __reduce__(self) -> tuple[type[Quads], tuple[Any, ...]]:
        parts = (self._starts, self._indices, self._numbers, self._scales, self._order)
        return Quads, ((self.rows, self.columns), *parts)

    def _check(self) -> None:
        """Checks what the kernel relies on: it reads only what lies within the arrays."""
        shape = (self.rows, -(-self.columns // 4))
        check_layout(shape, COLUMNS // 4, self._starts, self._indices, self._order)
        if self._numbers.shape != (len(self._indices), 4):
            raise ValueError(f"there are {len(self._indices)} indices for numbers of the shape {self._numbers.shape}")
        if self._scales.shape != (self.rows,):
            raise ValueError(f"there are not {self.rows} scales, one for every row")


class Full(SparseMatrix):
    """A matrix for activations in int8 that stores all its quads; rounding and sums are those of `Quads`.

    As in a dense product, a token with NaN or infinity in a block gives NaN in every output.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        numbers: npt.NDArray[np.int8],
        scales: npt.NDArray[np.float32],
        offsets: npt.NDArray[np.int32],
    ) -> None:
        """From its parts, as the kernel reads them (see kernel.h), checked. `pack` makes one from an array.

        Raises:
            ValueError: the parts do not make a matrix.
        """
        self.rows, self.columns = shape
        self._parts = (
            np.ascontiguousarray(numbers, np.int8),
            np.ascontiguousarray(scales, np.float32),
            np.ascontiguousarray(offsets, np.int32),
        )
        quads = _filled_up(self.rows) * -(-self.columns // 4)
        wanted = [(quads, 4), (self.rows,), (self.rows * blocks(self.columns, COLUMNS),)]
        found = [part.shape for part in self._parts]
        if found != wanted:
            raise ValueError(f"the parts of a full matrix must have the shapes {wanted}, got {found}")
        addresses = [part.ctypes.data for part in self._parts]
        self._matrix = Matrix(self.rows, self.columns, COLUMNS, None, None, None, *addresses, _FULL)

    @classmethod
    def pack(cls, weight: npt.NDArray[np.float32] | Elements) -> Self:
        """An array, shape (out_features, in_features), rounded to int8 with one scale a row.

        Raises:
            ArtifactError: a value is not finite.
        """
        (height, width), rows, columns, elements = weight if isinstance(weight, Elements) else Elements.of(weight)
        values, scales = encode_values(elements, np.bincount(rows, minlength=height), Values.INT8)
        assert scales is not None  # noqa: S101 (int8 has them)
        whole = np.zeros((_filled_up(height), -(-width // 4) * 4), np.int8)
        whole[rows, columns] = values
        numbers, offsets = [np.zeros((0, 4), np.int8)], [np.zeros(0, np.int32)]
        for top in range(0, height, BAND):
            for left in range(0, max(1, width), COLUMNS):
                part = whole[top : top + BAND, left : left + COLUMNS]
                tiles = part.reshape(len(part) // _TOGETHER, _TOGETHER, part.shape[1] // 4, 4).swapaxes(1, 2)
                numbers.append(tiles.reshape(-1, 4))
                offsets.append(_ZERO * part[: height - top].sum(1, dtype=np.int32))
        return cls((height, width), np.concatenate(numbers), from_bfloat16(scales), np.concatenate(offsets))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self._parts)

    def __reduce__(self) -> tuple[type[Full], tuple[Any, ...]]:
        return Full, ((self.rows, self.columns), *self._parts)


def _filled_up(rows: int) -> int:
    return -(-rows // _TOGETHER) * _TOGETHER
