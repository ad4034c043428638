"""Passes of a training step over all weights of a matrix, by the native kernel: one where numpy needs several.

All arrays are flat and contiguous, and float32 unless noted. One thread runs a call unless noted, and other Python
threads run on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvprune.runtime import kernel

Floats = npt.NDArray[np.float32]
Bits = npt.NDArray[np.uint8]
Bfloats = npt.NDArray[np.uint16]
_MORE = 1.5  # times as many candidates as expected have room


class _Penalty(ctypes.Structure):
    _fields_ = (("scores", ctypes.c_void_p), ("factor", ctypes.c_float), ("shift", ctypes.c_float))


class _Bracket(ctypes.Structure):
    _fields_ = (
        ("scores", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("factor", ctypes.c_float),
        ("low", ctypes.c_float),
        ("high", ctypes.c_float),
        ("count", ctypes.c_int64),
        ("kept", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("candidates", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("found", ctypes.c_int64),
        ("above", ctypes.c_int64),
    )


class Slope(NamedTuple):
    """The gradient of a penalty on scores S: factor · σ′(S − shift)."""

    scores: Floats
    factor: float
    shift: float


class Above(NamedTuple):
    """The result of `select_above`.

    Attributes:
        above: how many importances are from `high` on.
        indices: of those in [low, high), rising.
        values: these importances.
    """

    above: int
    indices: npt.NDArray[np.int64]
    values: Floats


def share_gradient(grad: Floats, weight: Floats, bits: Bits, of_scores: Floats, slope: Slope | None = None) -> None:
    """With G in `grad` and a mask M as `bits`: of_scores ← G ⊙ W + the penalty's gradient, grad ← G ⊙ M.

    σ′ is within 3e-7 of its value, relative to its largest, 1/4.

    Args:
        bits: one a weight, the first one in the lowest bit of the first byte.

    Raises:
        ValueError: the arrays differ in size, or one is not a flat contiguous array of float32, or of uint8 for bits.
    """
    _check(grad, weight, of_scores, *([] if slope is None else [slope.scores]))
    _check_bits(bits, len(grad))
    penalty = _Penalty() if slope is None else _Penalty(slope.scores.ctypes.data, slope.factor, slope.shift)
    kernel.library().mvprune_share_gradient(
        grad.ctypes.data,
        weight.ctypes.data,
        bits.ctypes.data,
        of_scores.ctypes.data,
        ctypes.byref(penalty),
        len(grad),
    )


def mask_weights(weight: Floats, bits: Bits, out: Floats | Bfloats, *, threads: int = 1) -> None:
    """out ← W ⊙ M, with a mask M as `bits`, see `share_gradient`. `threads` threads run the call.

    Args:
        out: float32, or uint16 for bf16, which is rounded to the nearest value, from the middle to the even one.

    Raises:
        ValueError: as `share_gradient`.
    """
    library, is_bf16 = kernel.library(), out.dtype == np.uint16
    _check(weight)
    _check_all([out], np.uint16 if is_bf16 else np.float32, len(weight))
    _check_bits(bits, len(weight))
    run = library.mvprune_mask_to_bf16 if is_bf16 else library.mvprune_mask_weights
    run(weight.ctypes.data, bits.ctypes.data, out.ctypes.data, len(weight), threads)


def select_above(
    scores: Floats,
    weights: Floats | None,
    factor: float,
    low: float,
    high: float,
    kept: npt.NDArray[np.bool_],
    expected: float,
) -> Above:
    """Marks the importances from `high` on, and gathers those in [low, high): kept ← importance ≥ high.

    An importance is S + factor · |W|, or S without `weights`, rounded as numpy rounds it.

    Args:
        scores: S, without NaN.
        weights: W.
        factor: of |W|.
        low, high: the bracket, low ≤ high.
        kept: bool, of the same size, written.
        expected: about how many importances are in [low, high), as a fraction; more take a second pass.

    Raises:
        ValueError: as `share_gradient`.
    """
    _check(scores, *([] if weights is None else [weights]))
    if kept.shape != scores.shape or kept.dtype != np.bool_ or not kept.flags.c_contiguous:
        raise ValueError("kept must be a flat contiguous array of bool with the size of the scores")
    room = 64 + int(len(scores) * expected * _MORE)
    while True:
        indices, values = np.empty(room, np.int64), np.empty(room, np.float32)
        bracket = _Bracket(
            scores.ctypes.data,
            None if weights is None else weights.ctypes.data,
            factor,
            low,
            high,
            len(scores),
            kept.ctypes.data,
            indices.ctypes.data,
            values.ctypes.data,
            room,
        )
        kernel.library().mvprune_select_above(ctypes.byref(bracket))
        if bracket.found <= room:
            return Above(bracket.above, indices[: bracket.found], values[: bracket.found])
        room = bracket.found


def _check(*arrays: npt.NDArray[Any]) -> None:
    _check_all(arrays, np.float32, len(arrays[0]))


def _check_all(arrays: Sequence[npt.NDArray[Any]], dtype: type[np.generic], count: int) -> None:
    """The kernel reads memory without looking at what lies there."""
    for array in arrays:
        if array.shape != (count,) or array.dtype != dtype or not array.flags.c_contiguous:
            raise ValueError(
                f"an array must be flat, contiguous, {dtype.__name__} and as long as the others, got {array.dtype} of "
                f"shape {array.shape}"
            )


def _check_bits(bits: npt.NDArray[Any], count: int) -> None:
    size = (count + 7) // 8
    if bits.shape != (size,) or bits.dtype != np.uint8 or not bits.flags.c_contiguous:
        raise ValueError(
            f"bits must be a flat contiguous array of uint8 with {size} values, got {bits.dtype} of shape {bits.shape}"
        )
