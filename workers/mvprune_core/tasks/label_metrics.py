"""Metrics of labels that do not exclude each other, and the thresholds of their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mvprune_core.tasks.metrics import MODULES, import_packages
from mvprune_core.tasks.resampling import SampleMetric, added, mean_of, sample_score_metric

_HALF = 0.5
_DIGITS = 4  # of a threshold


def label_metrics(
    names: Sequence[str], logits: NDArray[Any], thresholds: NDArray[Any], truth: NDArray[np.bool_]
) -> dict[str, float]:
    """The named metrics.

    f1_micro is F1 over all pairs of a text and a label, f1_macro the mean of F1 over the labels, and subset_accuracy
    the share of texts all of whose labels are right. roc_auc and average_precision, which need no threshold, are means
    over the labels that some texts have and some do not; where there is none, they are left out.

    Args:
        names: of the metrics.
        logits: shape (texts, labels).
        thresholds: probabilities, shape (labels,).
        truth: which labels the texts have, shape (texts, labels).

    Raises:
        CompressionError: MISSING_DEPENDENCY.
    """
    import_packages(MODULES)  # here, since they are large, and a model is served without them
    from sklearn import metrics as sk

    said = belongs(logits, thresholds)
    found: dict[str, float] = {
        "f1_micro": sk.f1_score(truth, said, average="micro", zero_division=0.0),
        "f1_macro": sk.f1_score(truth, said, average="macro", zero_division=0.0),
        "subset_accuracy": (truth == said).all(axis=1).mean(),
    }
    mixed = np.flatnonzero(truth.any(axis=0) & ~truth.all(axis=0))
    for name, measure in (("roc_auc", sk.roc_auc_score), ("average_precision", sk.average_precision_score)):
        if name in names and len(mixed):
            found[name] = np.mean([measure(truth[:, label], logits[:, label]) for label in mixed])
    return {name: float(found[name]) for name in names if name in found}


def belongs(logits: NDArray[Any], thresholds: NDArray[Any]) -> NDArray[np.bool_]:
    """Which labels belong to the texts, shape (texts, labels): those whose probability is at least the threshold."""
    return np.asarray(probabilities(logits) >= thresholds)


def probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Those of labels that do not exclude each other: the sigmoid of each logit."""
    return np.asarray((1 + np.tanh(logits.astype(np.float64) / 2)) / 2)


def best_thresholds(logits: NDArray[Any], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For each label the threshold with the largest F1 on these texts, of four digits, shape (labels,).

    The candidates lie in the middle between the probabilities of texts. Of those with the same F1 the nearest to 0.5 is
    taken, and 0.5 for a label that no text has.

    Args:
        logits: shape (texts, labels).
        truth: which labels the texts have, shape (texts, labels).
    """
    return np.array([_best_threshold(*each) for each in zip(probabilities(logits).T, truth.T, strict=True)])


def _best_threshold(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    if not truth.any():
        return _HALF
    order = np.argsort(scores)
    ordered = scores[order]
    between = (ordered[1:] + ordered[:-1]) / 2
    candidates = np.unique(
        np.clip(np.round([ordered[0], *between, _HALF], _DIGITS), 10.0**-_DIGITS, 1 - 10.0**-_DIGITS)
    )
    first = np.searchsorted(ordered, candidates)  # of the texts with at least so much
    right_from = np.append(np.cumsum(truth[order][::-1])[::-1], 0)  # texts with the label from this one on
    f1 = 2 * right_from[first] / (len(scores) - first + truth.sum())
    best = candidates[f1 >= f1.max() - 1e-12]
    return float(best[np.abs(best - _HALF).argmin()])


def label_counts(said: NDArray[np.bool_], truth: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each text and label whether it is right, said and true, shape (texts, labels, 3)."""
    return np.stack([said & truth, said, truth], axis=2).astype(np.int64)


def sample_label_metric(
    name: str, logits: NDArray[Any], thresholds: NDArray[Any], truth: NDArray[np.bool_]
) -> SampleMetric | None:
    """A metric of `label_metrics` on samples of the same texts; None for one of another name."""
    said = belongs(logits, thresholds)
    counts = label_counts(said, truth).astype(np.float64)
    match name:
        case "roc_auc" | "average_precision":
            return sample_score_metric(name, logits, truth)
        case "subset_accuracy":
            return mean_of((said == truth).all(axis=1))
        case "f1_micro":
            of_texts = counts.sum(axis=1)
            return lambda drawn: float(_f1(added(drawn, of_texts)[None]).mean())
        case "f1_macro":
            return lambda drawn: float(_f1(added(drawn, counts)).mean())
    return None


def _f1(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """From the numbers that are right, said and true, shape (…, 3)."""
    right, whole = counts[..., 0], counts[..., 1] + counts[..., 2]
    return np.divide(2 * right, whole, out=np.zeros_like(right), where=whole > 0)
