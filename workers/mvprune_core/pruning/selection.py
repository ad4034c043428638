"""Exact top-v selection of the entries of one matrix, or of several matrices together.

A full sort of BERT-base's 72 matrices takes as long as two training steps. Here the k-th largest value is found without
one: on the CPU between two bounds from a sample, on other devices by radix selection, without synchronization.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mvprune.runtime import kernel
from mvprune.runtime.passes import Above, select_above
from mvprune_core.pruning.elementwise import PIECE, in_parallel

_CHUNK = 8  # values that a device reads at once
_MANY = 1 << 16  # from this many values on, whole chunks are moved
_CLASSES = 509  # a prime
_SAMPLE = 1 << 15
_LINE = 16  # values of a cache line, which are read together; neighbours are slightly correlated
_SIGMAS = 4.0  # half the width of the bracket, in standard errors of the sample's quantile: 1 in 16,000 misses

Values = NDArray[np.float32]
_NOTHING = Above(0, np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True)
class WeightedScores:
    """The importance S + factor · |W|, computed while it is read: writing it to memory takes longer than selection.

    Attributes:
        scores: S, float32, contiguous.
        weight: W, with the same dtype, shape and device.
        factor: one value on the same device.
    """

    scores: Tensor
    weight: Tensor
    factor: Tensor


Importance = Tensor | WeightedScores


def select_top(importances: Sequence[Importance], count: int, masks: Sequence[Tensor], seed: int) -> None:
    """Writes True into `masks` where `importances` are among their `count` largest entries, all matrices together.

    Exactly `count` entries are True. The choice among equal values at the boundary is random and depends only on
    `seed`, so that constant scores do not keep whole rows.

    Args:
        importances: float32 or a shorter type, any shapes, contiguous, on one device, without NaN.
        count: 0 ≤ count ≤ number of entries.
        masks: bool tensors of the same shapes and device, overwritten.
        seed: seed of the choice among equal values.
    """
    if count == 0 or count == sum(mask.numel() for mask in masks):
        for mask in masks:
            mask.fill_(count > 0)
    elif masks[0].device.type == "cpu":
        _select_on_cpu(
            [_Scores(value) if isinstance(value, Tensor) else _Sums(value) for value in importances],
            count,
            [mask.numpy().reshape(-1) for mask in masks],
            seed,
        )
    else:
        together = torch.cat([materialize(importance).reshape(-1) for importance in importances])
        keep = select_top_on_device(together[None], count, seed)[0]
        start = 0
        for mask in masks:
            mask.copy_(keep[start : start + mask.numel()].view(mask.shape))
            start += mask.numel()


def materialize(importance: Importance) -> Tensor:
    """An importance as a float32 tensor, without gradients."""
    if isinstance(importance, Tensor):
        return importance.detach().float()
    return torch.addcmul(importance.scores.detach(), importance.weight.detach().abs(), importance.factor)


class _Scores:
    """The values of one importance, flat, on the CPU."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = _flat(scores)

    def __len__(self) -> int:
        return len(self._scores)

    def above(self, low: np.float32, high: np.float32, kept: NDArray[np.bool_], expected: float) -> Above:
        """Marks the values from `high` on, and gathers those in [low, high), about `expected` of all."""
        if not kernel.load():
            return select_above(*self._terms, float(low), float(high), kept, expected)
        indices, candidates, above = [], [], 0
        for start in range(0, len(self), PIECE):
            piece, marked = self.piece(start), kept[start : start + PIECE]
            between = piece >= low
            np.greater_equal(piece, high, out=marked)
            above += int(np.count_nonzero(marked))
            between ^= marked
            inside = np.flatnonzero(between)
            candidates.append(piece[inside])
            indices.append(inside + start)
        return Above(above, np.concatenate(indices), np.concatenate(candidates))

    @property
    def _terms(self) -> tuple[Values, Values | None, float]:
        """Scores, weights and the factor of |W|."""
        return self._scores, None, 0.0

    def piece(self, start: int) -> Values:
        """`PIECE` values from `start` on; valid until the next call."""
        return self._scores[start : start + PIECE]

    def take(self, indices: NDArray[np.intp]) -> Values:
        """The values at `indices`."""
        return self._scores[indices]

    def lines(self, indices: NDArray[np.intp]) -> Values:
        """The values of whole cache lines, concatenated."""
        return _lines(self._scores, indices)


class _Sums(_Scores):
    def __init__(self, terms: WeightedScores) -> None:
        super().__init__(terms.scores)
        self._weights, self._factor = _flat(terms.weight), terms.factor.numpy()
        self._buffer = np.empty(min(PIECE, len(self)), np.float32)

    @property
    def _terms(self) -> tuple[Values, Values | None, float]:
        return self._scores, self._weights, float(self._factor)

    def piece(self, start: int) -> Values:
        part = slice(start, start + PIECE)
        return self._sums(self._scores[part], self._weights[part], self._buffer[: len(self) - start])

    def take(self, indices: NDArray[np.intp]) -> Values:
        return self._sums(self._scores[indices], self._weights[indices])

    def lines(self, indices: NDArray[np.intp]) -> Values:
        return self._sums(_lines(self._scores, indices), _lines(self._weights, indices))

    def _sums(self, scores: Values, weights: Values, out: Values | None = None) -> Values:
        sums = np.abs(weights, out=out)
        np.multiply(sums, self._factor, out=sums)
        return np.add(sums, scores, out=sums)


def _flat(tensor: Tensor) -> Values:
    values: Values = tensor.detach().float().numpy().reshape(-1)
    return values


def _lines(values: Values, indices: NDArray[np.intp]) -> Values:
    return values[: len(values) // _LINE * _LINE].reshape(-1, _LINE).take(indices, axis=0).reshape(-1)


def _select_on_cpu(values: Sequence[_Scores], count: int, masks: Sequence[NDArray[np.bool_]], seed: int) -> None:
    """Keeps all values above the bracket, and ranks only the values inside it."""
    low, high, expected = _bracket(values, count)
    found: list[Above] = [_NOTHING] * len(values)

    def mark(index: int, value: _Scores) -> None:
        found[index] = value.above(low, high, masks[index], expected)

    in_parallel(mark, values)
    above = sum(each.above for each in found)
    insides, candidates = [each.indices for each in found], [each.values for each in found]
    if not above < count <= above + sum(map(len, insides)):  # the bracket missed
        insides = [np.arange(len(value)) for value in values]
        candidates = [value.take(inside) for value, inside in zip(values, insides, strict=True)]
        above = 0
        for mask in masks:
            mask.fill(False)
    keep = _largest(np.concatenate(candidates), count - above, seed)
    start = 0
    for mask, inside in zip(masks, insides, strict=True):
        mask[inside] = keep[start : start + len(inside)]
        start += len(inside)


def _bracket(values: Sequence[_Scores], count: int) -> tuple[np.float32, np.float32, float]:
    """Bounds of the `count`-th largest value, from a sample, and about which fraction of the values lies between them.

    They may miss the value, with a small probability.

    Only speed depends on them: `_select_on_cpu` notices a miss, and then ranks all values.
    """
    size = sum(len(value) for value in values)
    stride = max(1, size // _SAMPLE)
    generator = np.random.default_rng(size)
    sample = np.sort(np.concatenate([_one_in(stride, value, generator) for value in values]))
    # The spread of the sample's quantile, in ranks, is binomial.
    share = 1.0 - count / size
    spread = _SIGMAS * math.sqrt(len(sample) * share * (1.0 - share)) + 2
    first, last = math.floor(share * len(sample) - spread), math.ceil(share * len(sample) + spread)
    infinity = np.float32(np.inf)
    low = sample[first] if first >= 0 else -infinity
    high = sample[last] if last < len(sample) else infinity
    return low, high, min(1.0, 2 * spread / len(sample))


def _one_in(stride: int, value: _Scores, generator: np.random.Generator) -> Values:
    """About one in `stride` values: a random cache line of every `stride` lines.

    Lines at equal distances would be the same few columns in every row, and columns differ.
    """
    chosen = np.arange(len(value) // _LINE // stride) * stride
    chosen += generator.integers(stride, size=len(chosen))
    return value.lines(chosen) if len(chosen) else value.take(np.arange(0, len(value), stride))


def _largest(values: Values, count: int, seed: int) -> NDArray[np.bool_]:
    position = len(values) - count
    threshold = np.partition(values, position)[position]
    keep: NDArray[np.bool_] = values >= threshold
    surplus = np.count_nonzero(keep) - count
    if surplus > 0:
        ties = np.flatnonzero(values == threshold)
        keep[np.random.default_rng(seed).choice(ties, surplus, replace=False, shuffle=False)] = False
    return keep


def select_top_on_device(importance: Tensor, count: int, seed: int) -> Tensor:
    """`select_top` in every row of a matrix, without synchronization with the device.

    torch's radix selection reads every value about five times. Among equal values it takes the first ones, so the
    values are shuffled before.

    Args:
        importance: float32, shape (rows, entries).
        count: entries to keep in each row, 0 ≤ count ≤ entries.
        seed: seed of the choice among equal values.

    Returns:
        Bool, of the same shape: `count` True in each row.
    """
    size = importance.shape[1]
    shuffle = _Shuffle(size, seed, importance.device)
    fewer_are_kept = count <= size // 2
    fewer = count if fewer_are_kept else size - count
    found = shuffle.apply(importance).topk(fewer, dim=1, largest=fewer_are_kept, sorted=False).indices
    keep = torch.full_like(importance, not fewer_are_kept, dtype=torch.bool)
    return shuffle.undo(keep.scatter_(1, found, fewer_are_kept))


class _Shuffle:
    """An order of the entries in which no part of a matrix's row or column comes first.

    Entries (or chunks, if there are many) are dealt in turn to a prime number of classes, and the classes are shuffled.
    The remainder at the end keeps its place.
    """

    def __init__(self, size: int, seed: int, device: torch.device) -> None:
        self._chunk = _CHUNK if size >= _MANY else 1
        self._classes = min(_CLASSES, size // self._chunk)
        self._turns = size // (self._chunk * self._classes)
        self._end = self._turns * self._classes * self._chunk
        generator = torch.Generator(device).manual_seed(seed)
        self._order = torch.randperm(self._classes, generator=generator, device=device)

    def apply(self, rows: Tensor) -> Tensor:
        """Rows of shape (rows, entries) in this order."""
        return self._moved(rows, self._in_turns, self._in_classes, self._order)

    def undo(self, rows: Tensor) -> Tensor:
        """Rows of shape (rows, entries) in the order before `apply`."""
        return self._moved(rows, self._in_classes, self._in_turns, self._order.argsort())

    def _moved(
        self, rows: Tensor, source: Callable[[Tensor], Tensor], target: Callable[[Tensor], Tensor], order: Tensor
    ) -> Tensor:
        moved = torch.empty_like(rows)
        torch.index_select(source(rows), 1, order, out=target(moved))
        moved[:, self._end :] = rows[:, self._end :]
        return moved

    def _in_turns(self, rows: Tensor) -> Tensor:
        return rows[:, : self._end].view(len(rows), self._turns, self._classes, self._chunk).transpose(1, 2)

    def _in_classes(self, rows: Tensor) -> Tensor:
        return rows[:, : self._end].view(len(rows), self._classes, self._turns, self._chunk)
