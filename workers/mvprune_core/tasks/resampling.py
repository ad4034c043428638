"""The bootstrap: a metric on samples drawn, with replacement, from the examples that it was measured on.

The samples of a number of examples are always the same. So the values of two models are paired, and the quantiles of
their differences bound the difference (Efron and Tibshirani 1993, An Introduction to the Bootstrap, section 13.3; for
metrics of language Koehn 2004, https://aclanthology.org/W04-3250).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mvprune.artifact.history import Resampled

SAMPLES = 1000
"""Their quantiles of 2.5 and 97.5 % vary by a twentieth of the interval's width."""
LEVEL = 0.95

_SEED = 0

Counts = NDArray[np.float64]
"""How often each example is in a sample, shape (examples,)."""
SampleMetric = Callable[[Counts], float]


def resampled(examples: int, metric: SampleMetric) -> Resampled:
    """A metric on `SAMPLES` samples of as many examples as there are."""
    # The stream of the bit generator is the same in all versions of numpy; that of its distributions may change.
    random = np.random.PCG64(_SEED)
    values = []
    for _ in range(SAMPLES):
        drawn = (random.random_raw(examples) % np.uint64(examples)).astype(np.intp)
        values.append(metric(np.bincount(drawn, minlength=examples).astype(np.float64)))
    return Resampled.of(examples, values)


def interval(difference: float, one: Resampled | None, other: Resampled | None) -> tuple[float, float] | None:
    """The bounds of a difference of two metrics, at `LEVEL`; None unless both were measured on the same examples."""
    if one is None or other is None or one.examples != other.examples or len(one.values) != len(other.values):
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.subtract(one.values, other.values), (tail, 1 - tail))
    return min(float(low), difference), max(float(high), difference)


def added(counts: Counts, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum over a sample of numbers of each example, shape (examples, …)."""
    # Not `counts @ numbers`: the threads of BLAS cost a hundred times as much where all cores are busy.
    return np.asarray(np.einsum("i,i...->...", counts, numbers))


def mean_of(scores: NDArray[np.generic]) -> SampleMetric:
    """The mean of a score of each example, shape (examples,)."""
    numbers = scores.astype(np.float64)
    return lambda counts: float(added(counts, numbers) / counts.sum())


def sample_metric(name: str, predictions: NDArray[np.generic], references: NDArray[np.generic]) -> SampleMetric | None:
    """A metric of `metrics.compute_metrics` on samples of the same examples; None for one of another name."""
    match name:
        case "accuracy":
            return mean_of(predictions == references)
        case "f1":
            said, true = predictions == 1, references == 1
            sides = np.stack([said & true, said, true], axis=1).astype(np.float64)
            return lambda counts: _f1(*added(counts, sides))
        case "precision" | "recall":
            said, true = predictions == 1, references == 1
            which = said if name == "precision" else true
            parts = np.stack([said & true, which], axis=1).astype(np.float64)
            return lambda counts: _share(*added(counts, parts))
        case "f1_macro" | "f1_weighted" | "balanced_accuracy":
            return _mean_of_classes(name, predictions, references)
        case "matthews_correlation":
            return _matthews_of(predictions, references)
        case "pearson":
            one, other = predictions.astype(np.float64), references.astype(np.float64)
            return lambda counts: _correlation(counts, one, other)
        case "spearman":
            places = [np.unique(each, return_inverse=True)[1].ravel() for each in (predictions, references)]
            return lambda counts: _correlation(counts, *(_ranks(counts, each) for each in places))
    return None


def sample_score_metric(name: str, scores: NDArray[np.generic], truth: NDArray[np.bool_]) -> SampleMetric:
    """roc_auc or average_precision on samples of the same examples, as scikit-learn computes them: the mean over the
    columns of which a sample has both examples that are true and others; chance, where there is none.

    Args:
        name: of the metric.
        scores: shape (examples, columns).
        truth: of which the scores are to be higher, the same shape.
    """
    # The place of each score among the different ones, from the lowest on: equal scores share one.
    columns = [
        (np.unique(each, return_inverse=True)[1].ravel(), true) for each, true in zip(scores.T, truth.T, strict=True)
    ]
    measure = {"roc_auc": _area, "average_precision": _average_precision}[name]

    def metric(counts: Counts) -> float:
        values = []
        for places, true in columns:
            right, wrong = (np.bincount(places, counts * which).astype(np.float64) for which in (true, ~true))
            if right.sum() and wrong.sum():
                values.append(measure(right, wrong))
        return float(np.mean(values)) if values else 0.5

    return metric


def _area(right: NDArray[np.float64], wrong: NDArray[np.float64]) -> float:
    """The share of pairs of a true example and another one in which the true one has the higher score; equal scores
    count half. `right` and `wrong`: how many there are with each score, from the lowest on."""
    below = np.cumsum(wrong) - wrong / 2
    return float(right @ below / (right.sum() * wrong.sum()))


def _average_precision(right: NDArray[np.float64], wrong: NDArray[np.float64]) -> float:
    """The mean, over the true examples, of the share of true ones among all with at least their score."""
    true, all_ = (np.cumsum(each[::-1]) for each in (right, right + wrong))
    precision = np.divide(true, all_, out=np.zeros_like(true), where=all_ > 0)
    return float(right[::-1] @ precision / right.sum())


def _f1(right: float, said: float, true: float) -> float:
    return 2 * right / (said + true) if right else 0.0


def _share(right: float, whole: float) -> float:
    return right / whole if whole else 0.0


def _mean_of_classes(name: str, predictions: NDArray[np.generic], references: NDArray[np.generic]) -> SampleMetric:
    """A mean over the classes of F1 or of recall, from the counts of each class in a sample."""
    classes, places = np.unique(np.concatenate([predictions, references]), return_inverse=True)
    said, true = np.split(places.ravel(), 2)
    right = said == true

    def metric(counts: Counts) -> float:
        of_said, of_true, both = (
            np.bincount(places, counts * which, len(classes)) for places, which in ((said, 1), (true, 1), (true, right))
        )
        whole = of_true if name == "balanced_accuracy" else (of_said + of_true) / 2
        score = np.divide(both, whole, out=np.zeros_like(whole), where=whole > 0)
        return float(np.average(score, weights=of_true if name == "f1_weighted" else whole > 0))

    return metric


def _matthews_of(predictions: NDArray[np.generic], references: NDArray[np.generic]) -> SampleMetric:
    """For any number of classes (Gorodkin 2004, https://doi.org/10.1016/j.compbiolchem.2004.09.006)."""
    classes, places = np.unique(np.concatenate([predictions, references]), return_inverse=True)
    said, true = np.split(places.ravel(), 2)
    right = (said == true).astype(np.float64)

    def metric(counts: Counts) -> float:
        of_said, of_true = (np.bincount(each, counts, len(classes)) for each in (said, true))
        total = counts.sum()
        spread = (total**2 - of_said @ of_said) * (total**2 - of_true @ of_true)
        return float((added(counts, right) * total - of_said @ of_true) / math.sqrt(spread)) if spread > 0 else 0.0

    return metric


def _ranks(counts: Counts, places: NDArray[np.intp]) -> NDArray[np.float64]:
    """The rank of each example in a sample, ties in the middle; `places` are those of its value among all values."""
    alike = np.bincount(places, counts)
    ranks: NDArray[np.float64] = (np.cumsum(alike) - alike / 2)[places]
    return ranks


def _correlation(counts: Counts, one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    total = counts.sum()
    one, other = (each - added(counts, each) / total for each in (one, other))
    spread = math.sqrt(added(counts, one**2) * added(counts, other**2))
    return float(added(counts, one * other) / spread) if spread else 0.0
