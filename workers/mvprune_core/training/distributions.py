"""Distributions of weights and scores before and after pruning, as in figure 4 of Sanh, Wolf and Rush 2020."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mvprune.artifact.history import Histogram, Plane
from mvprune_core.methods import Matrix
from mvprune_core.pruning.elementwise import in_pieces

WEIGHT_BINS, SCORE_BINS = 64, 48
_FINE = 8192  # bins, from which the shown range is computed
_SHOWN = 0.999  # fraction of the values inside the shown range
_TINY = 1e-12


@dataclass(frozen=True)
class _Range:
    """`bins` bins of equal width, from `low` on."""

    low: float
    width: float
    bins: int

    @property
    def high(self) -> float:
        return self.low + self.bins * self.width

    def index(self, values: Tensor) -> Tensor:
        """The bin of every value. Values outside the range are in the outer bins."""
        places = (values.float() - self.low) / self.width
        return places.clamp_(0, self.bins - 1).int()  # which rounds down what is not negative

    def count(self, values: Iterable[Tensor]) -> Tensor:
        """The number of values in each bin, on the CPU."""
        counts = torch.zeros(self.bins, dtype=torch.long)
        for some in values:
            for (part,) in in_pieces(some):
                counts += torch.bincount(self.index(part), minlength=self.bins).cpu()
        return counts


class Distributions:
    """The distribution of the weights before training, and of weights and scores after it.

    Args:
        matrices: the pruned matrices, with the original weights; they are read, not kept.
    """

    def __init__(self, matrices: Sequence[Matrix]) -> None:
        reach = max(max(float(matrix.weight.detach().abs().max()) for matrix in matrices), _TINY)
        # Training may move weights outside their original range, so the bins cover twice that range.
        self._fine = _Range(-2 * reach, 4 * reach / _FINE, _FINE)
        self._original = self._fine.count(matrix.weight for matrix in matrices)

    def after(self, matrices: Sequence[Matrix]) -> tuple[Mapping[str, Histogram], Mapping[str, Plane]]:
        """Histograms and planes of `History` after training, with W' as the artifact stores it."""
        kept = self._fine.count(matrix.masked[matrix.kept] for matrix in matrices)
        group = _bins_together(self._fine, (self._original, kept))
        shown = slice(_FINE // 2 - group * WEIGHT_BINS // 2, _FINE // 2 + group * WEIGHT_BINS // 2)
        reach = group * WEIGHT_BINS / 2 * self._fine.width
        weights = _Range(-reach, group * self._fine.width, WEIGHT_BINS)
        groups = {
            name: _merged(counts, shown, group) for name, counts in (("original", self._original), ("kept", kept))
        }
        histograms = {"weights": Histogram(weights.low, weights.high, groups)}
        if any(matrix.scores is None for matrix in matrices):
            return histograms, {}
        scores = _score_range(matrices)
        by_mask = _by_mask(matrices, weights, scores)
        counts = {name: tuple(plane.sum(1).tolist()) for name, plane in by_mask.items()}
        rows = {name: tuple(tuple(row) for row in plane.tolist()) for name, plane in by_mask.items()}
        histograms["scores"] = Histogram(scores.low, scores.high, counts)
        return histograms, {"scores": Plane(x="weights", y="scores", counts=rows)}


def _bins_together(fine: _Range, counts: Sequence[Tensor]) -> int:
    """Number of fine bins per shown bin, so that almost all values of every group are inside the range."""
    middle = fine.bins // 2
    for group in range(1, fine.bins // WEIGHT_BINS):
        half = group * WEIGHT_BINS // 2
        if all(some[middle - half : middle + half].sum() >= _SHOWN * some.sum() for some in counts):
            return group
    return fine.bins // WEIGHT_BINS


def _merged(counts: Tensor, shown: slice, group: int) -> tuple[int, ...]:
    merged = counts[shown].reshape(WEIGHT_BINS, group).sum(1)
    merged[0] += counts[: shown.start].sum()
    merged[-1] += counts[shown.stop :].sum()
    return tuple(merged.tolist())


def _score_range(matrices: Sequence[Matrix]) -> _Range:
    scores = [matrix.scores.detach() for matrix in matrices if matrix.scores is not None]
    low, high = min(float(some.min()) for some in scores), max(float(some.max()) for some in scores)
    fine = _Range(low, max((high - low) / _FINE, _TINY), _FINE)
    shares = fine.count(scores).cumsum(0) / sum(some.numel() for some in scores)
    outside = (1 - _SHOWN) / 2
    first, last = int((shares <= outside).sum()), int((shares < 1 - outside).sum())
    return _Range(fine.low + first * fine.width, (last + 1 - first) * fine.width / SCORE_BINS, SCORE_BINS)


def _by_mask(matrices: Sequence[Matrix], weights: _Range, scores: _Range) -> dict[str, Tensor]:
    """Counts of the kept and of the pruned weights, shape (score bins, weight bins)."""
    size = scores.bins * weights.bins
    counts = torch.zeros(2 * size, dtype=torch.long)
    for matrix in matrices:
        if matrix.scores is None:
            continue
        for score, weight, masked in in_pieces(matrix.scores, matrix.weight, matrix.masked):
            cells = scores.index(score) * weights.bins + weights.index(weight)
            counts += torch.bincount(cells + size * (masked == 0).int(), minlength=2 * size).cpu()
    kept, pruned = counts.reshape(2, scores.bins, weights.bins)
    return {"kept": kept, "pruned": pruned}
