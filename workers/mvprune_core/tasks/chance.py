"""Finds predictions that are no better than a constant answer, or whose classes have the wrong names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_CLASSES = 500  # beyond, the search for other names takes too long
_SHOWN, _LONGEST = 10, 60  # names, and characters of one
_HALF = 0.5


@dataclass(frozen=True)
class SanityFailure:
    """What is implausible in a model's predictions.

    Attributes:
        finding: their metric, as the rest of a sentence about the model.
        by_chance: they are no better than a constant answer.
        fit: which classes they seem to mean; "" where no other names fit them better.
    """

    finding: str
    by_chance: bool = True
    fit: str = ""


def note_on(failure: SanityFailure, model: str) -> str:
    """A failed sanity check as a note; `model` is its subject."""
    meant = f": {failure.fit}; correct id2label in its config.json, or the labels of the data" if failure.fit else ""
    return f"{model} {failure.finding}{meant}"


def check_classes(predicted: NDArray[Any], true: NDArray[Any], names: Sequence[str]) -> SanityFailure | None:
    """What makes predicted classes implausible, if anything does.

    Args:
        predicted, true: numbers of classes, of one shape (predictions,).
        names: of the classes.
    """
    counts = np.bincount(true, minlength=len(names))
    if np.count_nonzero(counts) < 2:
        return None
    accuracy, constant = float((predicted == true).mean()), counts.max() / len(true)
    by_chance, fit = accuracy <= constant, ""
    if len(names) <= _MOST_CLASSES:
        best, fit = _other_names(predicted, true, names)
        if best <= constant or 1 - best > _HALF * (1 - accuracy):
            fit = ""
    if not by_chance and not fit:
        return None
    usual = names[int(counts.argmax())][:_LONGEST]
    finding = f"has the accuracy {accuracy:.4f}"
    if by_chance:
        finding += f", no better than {constant:.4f} of always answering {usual!r}"
    return SanityFailure(finding, by_chance, fit)


def check_labels(logits: NDArray[Any], true: NDArray[np.bool_], names: Sequence[str]) -> SanityFailure | None:
    """What makes logits of labels that do not exclude each other implausible, if anything does: they do not correlate
    with the labels, or better with others.

    Args:
        logits: shape (texts, labels).
        true: which labels the texts have, shape (texts, labels).
        names: of the labels.
    """
    mixed = true.any(axis=0) & ~true.all(axis=0)
    if not mixed.any():
        return None
    count = len(names)
    with np.errstate(invalid="ignore", divide="ignore"):
        both = np.corrcoef(logits.T.astype(np.float64), true.T.astype(np.float64))
    correlations = np.nan_to_num(np.atleast_2d(both)[:count, count:])  # 0 of what is constant
    mean, fit = float(np.diag(correlations)[mixed].mean()), ""
    if 1 < count <= _MOST_CLASSES:
        from scipy.optimize import linear_sum_assignment  # large, and a model is served without it

        said, meant = linear_sum_assignment(correlations, maximize=True)
        best = float(correlations[said, meant].sum() / mixed.sum())
        if best > max(_HALF, 2 * mean):
            fit = _in_words([(a, b) for a, b in zip(said, meant, strict=True) if a != b], names)
    if mean > 0 and not fit:
        return None
    finding = f"has logits with the mean correlation {mean:.4f} with their labels"
    return SanityFailure(finding + ", no better than a constant answer" * (mean <= 0), mean <= 0, fit)


def check_values(predicted: NDArray[Any], true: NDArray[Any]) -> SanityFailure | None:
    """What makes predicted values implausible, if anything does."""
    if np.ptp(true) == 0:
        return None
    correlation = 0.0 if np.ptp(predicted) == 0 else float(np.corrcoef(predicted, true)[0, 1])
    if correlation > 0:
        return None
    fit = "its values seem to run the other way" if correlation < -_HALF else ""
    return SanityFailure(
        f"has the correlation {correlation:.4f} with the values of the data, no better than a constant", fit=fit
    )


def _other_names(predicted: NDArray[Any], true: NDArray[Any], names: Sequence[str]) -> tuple[float, str]:
    """The accuracy with the names of the classes that fit best, and these names in words."""
    from scipy.optimize import linear_sum_assignment  # large, and a model is served without it

    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (predicted, true), 1)
    said, meant = linear_sum_assignment(confusion, maximize=True)
    best = confusion[said, meant].sum() / len(true)
    pairs = [(a, b) for a, b in zip(said, meant, strict=True) if a != b and confusion[a, b]]
    words = _in_words(pairs, names)
    return float(best), f"{words} (accuracy {best:.4f})" if words else ""


def _in_words(pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    """Which classes seem to be which others."""
    words = [f"{names[a][:_LONGEST]!r} seems to be {names[b][:_LONGEST]!r}" for a, b in pairs[:_SHOWN]]
    return f"its {', its '.join(words)}" if words else ""
