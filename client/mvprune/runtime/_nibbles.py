"""int4 numbers, two in a byte: how the native kernel reads the rows of an embedding.

A byte has a number of each half of 32 columns: bits 0 to 3 those of the first 16 columns, bits 4 to 7 those of the
others, plus 8. The last columns of a row are filled up to 32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_HALF = 16  # kHalf of kernel.h
_ZERO = 8  # what stands for 0
_ROWS = 1 << 12  # in work at a time: what is made on the way takes little memory


def joined(numbers: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    """(rows, columns) numbers from -8 to 7 → (rows, bytes)."""
    rows, columns = numbers.shape
    runs = -(-columns // (2 * _HALF))
    found = np.empty((rows, runs * _HALF), np.uint8)
    for first in range(0, rows, _ROWS):
        some = numbers[first : first + _ROWS]
        filled = np.full((len(some), runs * 2 * _HALF), _ZERO, np.uint8)
        filled[:, :columns] = some + np.int8(_ZERO)
        halves = filled.reshape(len(some), runs, 2, _HALF)
        found[first : first + _ROWS] = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(len(some), -1)
    return found


def separated(joint: npt.NDArray[np.uint8], columns: int) -> npt.NDArray[np.int8]:
    """The inverse of `joined`."""
    runs = joint.reshape(len(joint), joint.shape[1] // _HALF, 1, _HALF)
    halves = np.concatenate([runs & 15, runs >> 4], axis=2).astype(np.int8) - np.int8(_ZERO)
    found: npt.NDArray[Any] = halves.reshape(len(joint), -1)[:, :columns]
    return found
