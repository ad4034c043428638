"""Metrics of the named tasks, as fractions in [0, 1] (correlations in [−1, 1])."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as sk


def _correlation(function: Callable[..., Any]) -> Callable[[NDArray[Any], NDArray[Any]], float]:
    def compute(predictions: NDArray[Any], references: NDArray[Any]) -> float:
        # Undefined where one side is constant, as of a model that answers always the same: it explains nothing.
        if np.ptp(predictions) == 0 or np.ptp(references) == 0:
            return 0.0
        return float(function(predictions, references).statistic)

    return compute


_METRICS: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": lambda predictions, references: float(sk.accuracy_score(references, predictions)),
    "f1": lambda predictions, references: float(sk.f1_score(references, predictions, zero_division=0.0)),
    "matthews_correlation": lambda predictions, references: float(sk.matthews_corrcoef(references, predictions)),
    "pearson": _correlation(stats.pearsonr),
    "spearman": _correlation(stats.spearmanr),
}


def compute_metrics(names: Sequence[str], predictions: NDArray[Any], references: NDArray[Any]) -> dict[str, float]:
    """The named metrics over predictions and references of shape (examples,): class numbers, or values (regression).

    f1 is that of class 1, as in GLUE (Wang et al. 2019, arXiv:1804.07461).
    """
    return {name: _METRICS[name](predictions, references) for name in names}


def exact_match(prediction: str, answer: str) -> float:
    """1.0 where both say the same but for case, punctuation, articles and white space (SQuAD's official measure)."""
    return float(_words(prediction) == _words(answer))


def token_f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall over words, after the same normalisation (SQuAD's official measure)."""
    predicted, expected = _words(prediction), _words(answer)
    shared = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * shared / (len(predicted) + len(expected)) if shared else 0.0


def _words(text: str) -> list[str]:
    """Words of a text as SQuAD's official evaluation compares them."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()
