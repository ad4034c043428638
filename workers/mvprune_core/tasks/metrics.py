"""Metrics of the named tasks: fractions in [0, 1], correlations in [−1, 1]."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mvprune.data.kinds.token_classification.tagschemes import OUTSIDE, Split, split_tags
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.base.hub import first_line

MODULES = ("scipy.stats", "sklearn.metrics")
"""The packages that `compute_metrics` imports."""


def check_packages(modules: Sequence[str]) -> None:
    """Raises CompressionError MISSING_DEPENDENCY where the package of a module is missing. Imports nothing."""
    for module in modules:
        package = module.partition(".")[0]
        if find_spec(package) is None:
            raise CompressionError(
                Reason.MISSING_DEPENDENCY, f"metrics need the package {package}: pip install 'mvprune[worker]'"
            )


def import_packages(modules: Sequence[str]) -> None:
    """Imports modules of metrics, which takes a second or more.

    Raises:
        CompressionError: MISSING_DEPENDENCY, where a package is missing or cannot be imported.
    """
    check_packages(modules)
    for module in modules:
        try:
            import_module(module)
        except Exception as error:  # such as an ImportError of a library that was built for another one
            package = module.partition(".")[0]
            [name, *_] = packages_distributions().get(package, [package])
            raise CompressionError(
                Reason.MISSING_DEPENDENCY,
                f"metrics need the package {package}, whose import fails ({type(error).__name__}: "
                f"{first_line(error)}): pip install --force-reinstall {name}",
            ) from error


def import_packages_beside(modules: Sequence[str]) -> Future[None]:
    """`import_packages` in a thread, which ends before the interpreter does."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="metrics")
    imported = thread.submit(import_packages, modules)
    thread.shutdown(wait=False)
    return imported


def compute_metrics(names: Sequence[str], predictions: NDArray[Any], references: NDArray[Any]) -> dict[str, float]:
    """The named metrics over predictions and references of shape (examples,): class numbers, or values (regression).

    f1, precision and recall are those of class 1, as in GLUE (Wang et al. 2019, arXiv:1804.07461). f1_macro is the mean
    of F1 over the classes that occur, f1_weighted that over the examples, and balanced_accuracy the mean recall of the
    classes that have examples.

    Raises:
        CompressionError: MISSING_DEPENDENCY.
    """
    import_packages(MODULES)  # here, since both are large, and a model is served without them
    from scipy import stats
    from sklearn import metrics as sk

    measures: dict[str, Callable[[], float]] = {
        "accuracy": lambda: sk.accuracy_score(references, predictions),
        "f1": lambda: sk.f1_score(references, predictions, zero_division=0.0),
        "precision": lambda: sk.precision_score(references, predictions, zero_division=0.0),
        "recall": lambda: sk.recall_score(references, predictions, zero_division=0.0),
        "f1_macro": lambda: sk.f1_score(references, predictions, average="macro", zero_division=0.0),
        "f1_weighted": lambda: sk.f1_score(references, predictions, average="weighted", zero_division=0.0),
        "balanced_accuracy": lambda: _balanced_accuracy(predictions, references),
        "matthews_correlation": lambda: _matthews(sk.matthews_corrcoef, predictions, references),
        "pearson": lambda: _correlation(stats.pearsonr, predictions, references),
        "spearman": lambda: _correlation(stats.spearmanr, predictions, references),
    }
    return {name: float(measures[name]()) for name in names}


def _balanced_accuracy(predictions: NDArray[Any], references: NDArray[Any]) -> float:
    # Not scikit-learn's, which warns of every class that is only predicted.
    right = predictions == references
    return float(np.mean([right[references == number].mean() for number in np.unique(references)]))


def _matthews(function: Callable[..., Any], predictions: NDArray[Any], references: NDArray[Any]) -> float:
    # scikit-learn's 0 of a single class comes with a warning.
    one_class = len(np.union1d(predictions, references)) < 2
    return 0.0 if one_class else float(function(references, predictions))


def _correlation(function: Callable[..., Any], predictions: NDArray[Any], references: NDArray[Any]) -> float:
    # Undefined where one side is constant, as for a model with a constant answer: it explains nothing.
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    return float(function(predictions, references).statistic)


def exact_match(prediction: str, answer: str) -> float:
    """1.0 where both are equal except for case, punctuation, articles and white space (SQuAD's official measure)."""
    return float(_words(prediction) == _words(answer))


def token_f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall over words, after the same normalisation (SQuAD's official measure)."""
    predicted, expected = _words(prediction), _words(answer)
    shared = sum((Counter(predicted) & Counter(expected)).values())
    return 2 * shared / (len(predicted) + len(expected)) if shared else 0.0


def answer_scores(
    predictions: Sequence[str], answers: Sequence[Sequence[str]], *, allows_no_answer: bool
) -> dict[str, NDArray[np.float64]]:
    """SQuAD's official measures, exact_match and f1, of each question: the best match among its answers.

    Args:
        predictions: one for each question; a prediction without words means that there is no answer.
        answers: those accepted; an empty sequence where there is none.
        allows_no_answer: measure as SQuAD 2.0 does (Rajpurkar et al. 2018, https://arxiv.org/abs/1806.03822): where no
            answer has words, the prediction must have none; otherwise answers without words do not count.
    """
    exact, f1 = np.empty(len(predictions)), np.empty(len(predictions))
    for index, (said, accepted) in enumerate(zip(predictions, answers, strict=True)):
        counted = [answer for answer in accepted if _words(answer)] if allows_no_answer else accepted
        if counted:
            exact[index] = max(exact_match(said, answer) for answer in counted)
            f1[index] = max(token_f1(said, answer) for answer in counted)
        else:
            exact[index] = f1[index] = exact_match(said, "")
    return {"exact_match": exact, "f1": f1}


def answer_metrics(
    predictions: Sequence[str], answers: Sequence[Sequence[str]], *, allows_no_answer: bool
) -> dict[str, float]:
    """The means of `answer_scores`; where answerable and unanswerable questions are both among them, also has_ans_f1
    and no_ans_f1, the f1 over each."""
    scores = answer_scores(predictions, answers, allows_no_answer=allows_no_answer)
    answerable, f1 = np.array([len(accepted) > 0 for accepted in answers]), scores["f1"]
    metrics = {name: float(each.mean()) for name, each in scores.items()}
    if answerable.any() and not answerable.all():
        metrics |= {"has_ans_f1": float(f1[answerable].mean()), "no_ans_f1": float(f1[~answerable].mean())}
    return metrics


def entity_counts(
    predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]], names: Collection[str]
) -> NDArray[np.int64]:
    """What `entity_metrics` is computed from, shape (sentences, 5): the entities that are right, said and expected, the
    words that are right, and all words.

    An entity counts where its first word, its last word and its type are right (Tjong Kim Sang and De Meulder 2003,
    https://arxiv.org/abs/cs/0306050, section 2.4).

    Args:
        predictions: the names of the tags of each sentence's words.
        references: the true ones, of the same lengths.
        names: of all tags.
    """
    split, counts = split_tags(names), np.empty((len(references), 5), dtype=np.int64)
    for row, tags, true in zip(counts, predictions, references, strict=True):
        said, expected = set(entities(tags, split)), set(entities(true, split))
        right = sum(one == other for one, other in zip(tags, true, strict=True))
        row[:] = len(said & expected), len(said), len(expected), right, len(true)
    return counts


def entity_metrics(counts: NDArray[Any]) -> dict[str, float]:
    """Measures over tagged sentences, from their `entity_counts` added up, shape (5,): f1, precision and recall over
    entities, accuracy over words."""
    right, said, expected, right_words, words = counts.tolist()
    return {
        "f1": 2 * right / (said + expected) if right else 0.0,
        "precision": right / said if right else 0.0,
        "recall": right / expected if right else 0.0,
        "accuracy": right_words / words,
    }


def entities(tags: Sequence[str], split: Split | None = None) -> list[tuple[int, int, str]]:
    """The entities among the words of a sentence: first word, last word, type.

    Reads IOB1, IOB2, IOE, IOBES and BILOU, and mends what does not fit, by the rules of the CoNLL shared tasks: a word
    begins an entity if its tag says so (B, S, U), if it follows a word outside or one that ends an entity (E, L, S, U),
    or if its type is another than the word's before. A tag without a position is a type.

    Args:
        tags: of the words.
        split: of `split_tags`, for the set of tags that there are; None: these tags are all.
    """
    split = split or split_tags(set(tags))
    found: list[tuple[int, int, str]] = []
    begin, before, kind = 0, OUTSIDE, ""
    for index, (prefix, its_kind) in enumerate([*map(split, tags), (OUTSIDE, "")]):
        begins = prefix != OUTSIDE and (prefix in "BSU" or before in "OELSU" or its_kind != kind)
        if before != OUTSIDE and (begins or prefix == OUTSIDE):
            found.append((begin, index - 1, kind))
        if begins:
            begin = index
        before, kind = prefix, its_kind
    return found


def _words(text: str) -> list[str]:
    """Words of a text as SQuAD's official evaluation compares them."""
    bare = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()
