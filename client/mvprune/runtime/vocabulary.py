"""The product with a vocabulary in int8, exact where it matters. Knows numpy and addresses, not torch."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from mvprune.artifact.values import Values, encode_values, from_bfloat16, row_counts
from mvprune.runtime import kernel
from mvprune.runtime.masked import Masked, Structure, taken

_SAMPLE = 16  # rows that say whether a matrix was stored as int8
_LARGEST = 127
_SLACK = np.float32(1.00001)  # norms are rounded up


class _Rounded(ctypes.Structure):
    _fields_ = (
        ("rounded", ctypes.POINTER(Structure)),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("errors", ctypes.c_void_p),
        ("sizes", ctypes.c_void_p),
    )


class RoundedVocabulary:
    """A matrix (words, features) in int8, beside itself. Immutable: threads share it.

    |w·x - w'·x'| ≤ |w - w'| |x| + |w'| |x - x'| bounds how far the product of the rounded w' and x' is from the exact
    one (Cauchy and Schwarz). A word whose bound reaches that of the `top`-th is computed exactly.

    Args:
        weight: finite.
    """

    def __init__(self, weight: npt.NDArray[np.float32]) -> None:
        scales = np.abs(weight).max(1, initial=0).astype(np.float32) / np.float32(_LARGEST)
        numbers = np.empty(weight.shape, np.int8)
        errors, sizes = np.empty(len(weight), np.float32), np.empty(len(weight), np.float32)
        for top in range(0, len(weight), 4096):  # what is between stays small
            part, scale = weight[top : top + 4096], scales[top : top + 4096, None]
            whole = np.rint(part / np.where(scale > 0, scale, 1))
            numbers[top : top + 4096] = whole
            left = whole * scale
            errors[top : top + 4096] = np.linalg.norm(part - left, axis=1)
            sizes[top : top + 4096] = np.linalg.norm(left, axis=1)
        self._masked = Masked(numbers, scales, "int8")
        self._errors, self._sizes = errors * _SLACK, sizes * _SLACK

    @property
    def nbytes(self) -> int:
        """Bytes that it takes beside the matrix itself."""
        return self._masked.nbytes + self._errors.nbytes + self._sizes.nbytes

    def product(
        self, x: int, y: int, tokens: int, *, weight: int, bias: int = 0, top: int = 1, threads: int = 1
    ) -> bool:
        """y = x Wᵀ + bias, of which for each token the `top` largest, and all that the bound cannot tell from them, are
        those of float32, and the others within the bound.

        Args:
            x: (tokens, features), the address of contiguous float32.
            y: (tokens, words), written.
            tokens: of any number; each reads the matrix.
            weight: the address of the matrix itself, contiguous float32.
            bias: (words,), or 0 for none.
            top: at least 1.
            threads: at most, the caller's among them; they do not change the result.

        Returns:
            False if a number of x is not finite, or so large that sums overflow.

        Raises:
            MemoryError: no memory for the products.
        """
        bounds = (self._errors.ctypes.data, self._sizes.ctypes.data)
        given = _Rounded(self._masked.pointer(), weight, bias, *bounds)
        return taken(kernel.library().mvprune_vocabulary(ctypes.byref(given), x, y, tokens, top, threads))


def exact_int8(weight: npt.NDArray[np.float32]) -> Masked | None:
    """The matrix for exact products in int8 with a scale a row, or None if it does not hold such numbers.

    Artifacts store embeddings so, by default.
    """
    if len(weight) == 0 or _int8_of(weight[:_SAMPLE]) is None:
        return None
    parts: list[Any] = []
    for top in range(0, len(weight), 4096):
        if (part := _int8_of(weight[top : top + 4096])) is None:
            return None
        parts.append(part)
    return Masked(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]), "fp32")


def _int8_of(rows: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]] | None:
    numbers, encoded = encode_values(rows.reshape(-1), row_counts(rows.shape), Values.INT8)
    scales = from_bfloat16(encoded) if encoded is not None else np.zeros(len(rows), np.float32)
    whole = numbers.astype(np.int8).reshape(rows.shape)
    return (whole, scales) if np.array_equal(whole * scales[:, None], rows) else None
