"""Passes of a training step over all weights of a matrix, by the native kernel: one where numpy needs several.

All arrays are flat, contiguous and float32, on the CPU. One thread runs a call, and other Python threads run on.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mvprune.runtime import kernel

Floats = npt.NDArray[np.float32]
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
    """What `select_above` found.

    Attributes:
        above: how many importances are from `high` on.
        indices: of those in [low, high), rising.
        values: these importances.
    """

    above: int
    indices: npt.NDArray[np.int64]
    values: Floats


def share_gradient(grad: Floats, weight: Floats, masked: Floats, slope: Slope | None = None) -> None:
    """With G in `grad` and W' in `masked`: masked ← G ⊙ W + the penalty's gradient, grad ← G ⊙ [W' ≠ 0].

    σ′ is within 3e-7 of its value, relative to its largest, 1/4.

    Raises:
        ValueError: the arrays differ in size, or one is not a flat contiguous array of float32.
    """
    arrays = (grad, weight, masked) if slope is None else (grad, weight, masked, slope.scores)
    _check(*arrays)
    penalty = _Penalty() if slope is None else _Penalty(slope.scores.ctypes.data, slope.factor, slope.shift)
    kernel.library().mvprune_share_gradient(
        grad.ctypes.data, weight.ctypes.data, masked.ctypes.data, ctypes.byref(penalty), len(grad)
    )


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
    """The kernel reads memory without looking at what lies there."""
    for array in arrays:
        if array.shape != (len(arrays[0]),) or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise ValueError(
                f"an array must be flat, contiguous, float32 and as long as the others, got {array.dtype} of shape "
                f"{array.shape}"
            )
