"""Metrics of classes that exclude each other, from the logits of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mvprune.data.kinds.classification.labelled import OF_SCORES, OF_SECOND
from mvprune_core.tasks.metrics import MODULES, compute_metrics, import_packages

CALIBRATION_ERROR = "calibration_error"

_BINS = 15
_TWO = 2


def class_metrics(names: Sequence[str], logits: NDArray[Any], references: NDArray[Any]) -> dict[str, float]:
    """The named metrics, without those that the data does not have: f1, precision and recall of the second class where
    there are not two, roc_auc and average_precision where a class has no example.

    Args:
        names: of metrics, see `compute_metrics` and `score_metric`.
        logits: shape (examples, classes).
        references: numbers of classes, shape (examples,).

    Raises:
        CompressionError: MISSING_DEPENDENCY.
    """
    classes = logits.shape[1]
    left_out = {*OF_SECOND} if classes != _TWO else set[str]()
    if len(np.unique(references)) < classes:
        left_out |= {*OF_SCORES}
    of_classes = [name for name in names if name not in (*OF_SCORES, CALIBRATION_ERROR)]
    found = compute_metrics([name for name in of_classes if name not in left_out], logits.argmax(axis=1), references)
    for name in names:
        if name == CALIBRATION_ERROR:
            found[name] = calibration_error(_probabilities(logits), references)
        elif name in OF_SCORES and name not in left_out:
            found[name] = score_metric(name, logits, references)
    return {name: found[name] for name in names if name in found}


def score_metric(name: str, logits: NDArray[Any], references: NDArray[Any]) -> float:
    """How well scores rank the examples of a class above all others: roc_auc or average_precision.

    Of two classes it is that of the second one; of more the mean over the classes, each against all others, whatever
    their sizes (macro).

    Args:
        name: of the metric.
        logits: shape (examples, classes).
        references: numbers of classes, shape (examples,); each class is among them.
    """
    import_packages(MODULES)
    from sklearn import metrics as sk

    measure = {"roc_auc": sk.roc_auc_score, "average_precision": sk.average_precision_score}[name]
    scores, truth = scores_of_classes(logits, references)
    return float(np.mean([measure(true, score) for true, score in zip(truth.T, scores.T, strict=True)]))


def scores_of_classes(logits: NDArray[Any], references: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """What the metrics of scores compare, a column for each class, or one for the second of two: the scores of the
    class, and which examples are of it.

    Args:
        logits: shape (examples, classes).
        references: numbers of classes, shape (examples,).
    """
    which = np.arange(logits.shape[1]) if logits.shape[1] != _TWO else np.array([1])
    # Logarithms of p / (1 − p): they rank as the probabilities p do, but no two of them are rounded to 1.
    shifted = logits.astype(np.float64)
    others = [np.logaddexp.reduce(np.delete(shifted, one, axis=1), axis=1) for one in which]
    return shifted[:, which] - np.stack(others, axis=1), references[:, None] == which


def calibration_error(probabilities: NDArray[Any], references: NDArray[Any]) -> float:
    """The expected calibration error (Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 2), from 0 to 1:

        Σ_b |B_b| / n · |acc(B_b) − conf(B_b)|

    The confidence of an example is the probability of its most probable class. The bins B_b are 15 intervals of equal
    width, (b / 15, (b + 1) / 15]; acc is the share of right answers in a bin and conf the mean confidence.

    Args:
        probabilities: shape (examples, classes).
        references: numbers of classes, shape (examples,).
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == references
    bins = np.clip(np.ceil(confidence * _BINS).astype(np.int64) - 1, 0, _BINS - 1)
    surplus = np.bincount(bins, weights=right - confidence, minlength=_BINS)
    return float(np.abs(surplus).sum() / len(references))


def confusion(predictions: NDArray[Any], references: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """How many examples of each class were taken for each class, shape (true, predicted)."""
    pairs = references.astype(np.int64) * classes + predictions
    return np.bincount(pairs, minlength=classes**2).reshape(classes, classes)


def _probabilities(logits: NDArray[Any]) -> NDArray[np.float64]:
    exponentials = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True))
