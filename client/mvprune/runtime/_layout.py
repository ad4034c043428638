"""How the elements of a sparse matrix lie in the kernel's memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

BAND = 256
"""Rows that lie together; kBand of kernel.h."""


def blocks(columns: int, block: int) -> int:
    """How many blocks of that many columns a matrix has; at least one."""
    return max(1, -(-columns // block))


class Layout(NamedTuple):
    """How the elements of a matrix lie: by bands of rows, blocks of columns, rows (the fullest first), and columns.

    Attributes:
        starts: where each row of each block starts, (rows × blocks + 1,).
        order: which row of its band each of these is, (rows × blocks,).
        stored: which of the given elements is stored where, (elements,).
        indices: the stored elements' columns within the block, (elements,).
    """

    starts: npt.NDArray[np.int64]
    order: npt.NDArray[np.uint8]
    stored: npt.NDArray[np.int64]
    indices: npt.NDArray[np.uint16]


def lay_out(shape: tuple[int, int], rows: npt.NDArray[Any], columns: npt.NDArray[Any], block: int) -> Layout:
    """The layout of elements that come in row-major order."""
    height, across = shape[0], blocks(shape[1], block)
    run = rows * across + columns // block  # a run holds the elements that a row has in a block
    sizes = np.bincount(run, minlength=height * across)
    run_rows, run_blocks = np.divmod(np.arange(len(sizes)), across)
    ordered = np.lexsort((-sizes, run_blocks, run_rows // BAND))
    stored = np.argsort(np.argsort(ordered)[run], kind="stable")  # stable: columns go on rising
    return Layout(
        np.concatenate([[0], np.cumsum(sizes[ordered])]),
        (run_rows[ordered] % BAND).astype(np.uint8),
        stored,
        (columns % block)[stored].astype(np.uint16),
    )


def check_layout(
    shape: tuple[int, int],
    block: int,
    starts: npt.NDArray[np.int64],
    indices: npt.NDArray[np.uint16],
    order: npt.NDArray[np.uint8],
) -> None:
    """Checks that a layout is one of that shape.

    Raises:
        ValueError: it is not.
    """
    rows, columns = shape
    runs = rows * blocks(columns, block)
    if min(shape) < 0 or len(starts) != runs + 1:
        raise ValueError(f"{len(starts)} starts do not fit the shape ({rows}, {columns})")
    if starts[0] != 0 or starts[-1] != len(indices) or (np.diff(starts) < 0).any():
        raise ValueError("the starts of the rows do not rise from 0 to the number of weights")
    if len(order) != runs:
        raise ValueError(f"the order is of {len(order)} rows of blocks, not {runs}")
    first = 0
    for top in range(0, rows, BAND):
        height = min(BAND, rows - top)
        for left in range(0, max(1, columns), block):
            if not np.array_equal(np.sort(order[first : first + height]), np.arange(height)):
                raise ValueError("the order of a block does not have each row of its band once")
            if (indices[starts[first] : starts[first + height]] >= min(block, columns - left)).any():
                raise ValueError("an index lies outside its block of columns")
            first += height
