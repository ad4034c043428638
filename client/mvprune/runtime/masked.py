"""Matrices for few tokens, as decoding has them: a mask's bits and the kept values.

A call of few tokens takes as long as reading the weights. A weight that is not kept costs a bit, or with aligned blocks
of four columns a quarter of one, and a kept one its own bytes. Knows numpy and addresses, not torch.
"""

from __future__ import annotations

import ctypes
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from mvprune.artifact.values import Values, encode_values, from_bfloat16
from mvprune.runtime import kernel
from mvprune.runtime._elements import Elements
from mvprune.runtime.kernel import Activations
from mvprune.runtime.quads import COLUMNS, FILLED

Kept = Literal["all", "weights", "quads"]
"""What a bit of the mask keeps."""

FEW = 8
"""Tokens that share what is read of a matrix; kFew of masked.h."""

_TILE = 16  # kTileRows of masked.h
_GROUP = 64  # kGroup of masked.h
_ZERO = 128  # a byte of an activation that is zero
_NOT_FINITE = 3  # the status of a call that says so
_KEPT = MappingProxyType({"all": 0, "weights": 1, "quads": 2})
_KINDS = MappingProxyType({np.dtype(np.float32): 0, np.dtype(np.int8): 2, np.dtype(np.float16): 3})


class Structure(ctypes.Structure):
    """A matrix, as the library takes it."""

    _fields_ = (
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("masks", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("starts", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p),
        ("kept", ctypes.c_int32),
        ("kind", ctypes.c_int32),
    )


def multiplies_few() -> bool:
    """Whether the kernel has products of few tokens here: AVX-512 with VBMI2 and VNNI."""
    return not kernel.load() and bool(kernel.library().mvprune_has_few())


class Masked:
    """A matrix (out_features, in_features) for products with few tokens. Immutable: threads share it.

    With int8 activations, outputs are those of `quads.for_bytes`, bit for bit. With fp32 activations they differ from
    those of `kernel.Packed` by the order of the sums: values are stored as int8 with a scale for each row, or as fp16,
    only where that is exact.

    Attributes:
        rows: out_features.
        columns: in_features.
    """

    def __init__(
        self,
        numbers: npt.NDArray[Any],
        scales: npt.NDArray[np.float32] | None,
        activations: Activations,
        kept: Kept = "all",
    ) -> None:
        """From its numbers; `pack` chooses how a weight is stored.

        Args:
            numbers: (out_features, in_features) of float32, float16 or int8; int8 for int8 activations.
            scales: of int8, (out_features,).
            activations: int8: x is rounded as `quads.Quads` does it.
            kept: what a bit of the mask keeps; quads are of int8 only.
        """
        self.rows, self.columns = numbers.shape
        height, across = -(-self.rows // _TILE) * _TILE, -(-self.columns // _GROUP) * _GROUP
        whole = np.zeros((height, across), numbers.dtype)
        whole[: self.rows, : self.columns] = numbers
        block = COLUMNS if activations == "int8" else max(_GROUP, across)
        positions, width = _kept_of(whole, kept), 4 if kept == "quads" else 1
        self._masks = None if kept == "all" else _bits(positions, block // width)
        pieces = zip(_pieces(whole, block), _pieces(positions, block // width), strict=True)
        values = [piece.reshape(-1, width)[bits.reshape(-1)].reshape(-1) for piece, bits in pieces]
        self._values = np.concatenate([*values, np.zeros(_GROUP, numbers.dtype)])
        per_tile = positions.reshape(-1, max(1, _TILE * positions.shape[1])).sum(1, dtype=np.int64) * width
        self._starts = np.concatenate([[0], np.cumsum(per_tile)]).astype(np.int64)
        self._scales = None if scales is None else np.concatenate([scales, np.zeros(height - self.rows, np.float32)])
        self._offsets = _offsets(whole) if activations == "int8" else None
        self._kept: Kept = kept
        self._matrix = self._structure()

    @classmethod
    def pack(cls, weight: Elements, activations: Activations = "fp32") -> Self:
        """A weight by its non-zeros, in the layout with the fewest bytes.

        Args:
            weight: finite.
            activations: int8: x and the weights are rounded as `quads.Quads` and `quads.Full` do it.

        Raises:
            ArtifactError: a value is not finite.
        """
        filled = weight.filled_quads()
        values, scales = _numbers(weight, activations, sparse=filled <= FILLED)
        numbers = np.zeros(weight.shape, values.dtype)
        numbers[weight.rows, weight.columns] = values
        return cls(numbers, scales, activations, _smallest(weight, filled, values.itemsize))

    def _structure(self) -> Structure:
        return Structure(
            self.rows,
            self.columns,
            *(
                None if array is None else array.ctypes.data
                for array in (self._masks, self._values, self._starts, self._scales, self._offsets)
            ),
            _KEPT[self._kept],
            _KINDS[self._values.dtype],
        )

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, and a call reads."""
        arrays = (self._masks, self._values, self._starts, self._scales, self._offsets)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def layout(self) -> tuple[Kept, str]:
        """What a bit of the mask keeps, and the dtype of the values."""
        return self._kept, self._values.dtype.name

    def linear(self, x: int, y: int, tokens: int, *, bias: int = 0, threads: int = 1) -> bool:
        """y = x Wᵀ + bias, on addresses of contiguous float32.

        Args:
            x: (tokens, in_features).
            y: (tokens, out_features), written; must not overlap x or bias.
            tokens: of any number.
            bias: (out_features,), or 0 for none.
            threads: at most, the caller's among them; they do not change the result.

        Returns:
            False if a number of x is not finite: only the matrices for many tokens say where such numbers go.

        Raises:
            MemoryError: no memory for the input.
        """
        return taken(kernel.library().mvprune_few(self.pointer(), x, bias, y, tokens, threads))

    def pointer(self) -> Any:
        """As the library takes it."""
        return ctypes.pointer(self._matrix)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_matrix"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._matrix = self._structure()  # of the addresses of the copies


def taken(status: int) -> bool:
    """What the status of a call says: False if a number of x is not finite.

    Raises:
        MemoryError: there was no memory.
    """
    if status == _NOT_FINITE:
        return False
    kernel.done(status)
    return True


def _numbers(
    weight: Elements, activations: Activations, *, sparse: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32] | None]:
    """The values as they are stored, and their scales."""
    counts = np.bincount(weight.rows, minlength=weight.shape[0])
    for is_sparse in (sparse, not sparse):
        numbers, encoded = encode_values(weight.values, counts, Values.INT8, sparse=is_sparse)
        assert encoded is not None  # noqa: S101 (int8 has them)
        scales = from_bfloat16(encoded)
        if activations == "int8" or np.array_equal(numbers * np.repeat(scales, counts), weight.values):
            return numbers.astype(np.int8), scales
    with np.errstate(over="ignore"):
        halves = weight.values.astype(np.float16)
    return (halves if np.array_equal(halves, weight.values) else weight.values.astype(np.float32)), None


def _smallest(weight: Elements, filled: float, size: int) -> Kept:
    """The layout with the fewest bytes; `size` is that of a value."""
    shape = weight.shape
    places = shape[0] * shape[1]
    sizes: dict[Kept, float] = {"all": size * places, "weights": size * len(weight.values) + places / 8}
    if size == 1:
        sizes["quads"] = filled * places + places / 32
    return min(sizes, key=lambda kept: sizes[kept])


def _kept_of(whole: npt.NDArray[Any], kept: Kept) -> npt.NDArray[np.bool_]:
    if kept == "all":
        return np.ones(whole.shape, bool)
    width = 4 if kept == "quads" else 1
    positions: npt.NDArray[np.bool_] = np.any(whole.reshape(len(whole), whole.shape[1] // width, width), axis=2)
    return positions


def _pieces(whole: npt.NDArray[Any], block: int) -> list[npt.NDArray[Any]]:
    """The blocks of each tile, (rows of a tile, columns of a block), as the kernel reads them."""
    return [
        whole[top : top + _TILE, left : left + block]
        for top in range(0, len(whole), _TILE)
        for left in range(0, whole.shape[1], block)
    ]


def _bits(positions: npt.NDArray[np.bool_], block: int) -> npt.NDArray[np.uint8]:
    """The mask in bytes, of which a group of a row is some whole ones."""
    packed = np.packbits(positions, axis=1, bitorder="little")
    return np.concatenate([np.zeros(0, np.uint8), *(piece.reshape(-1) for piece in _pieces(packed, block // 8))])


def _offsets(whole: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
    """128 times the sum of each row of each block."""
    sums = [_ZERO * piece.sum(1, dtype=np.int32) for piece in _pieces(whole, COLUMNS)]
    return np.concatenate([np.zeros(0, np.int32), *sums])
