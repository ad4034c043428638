"""Weights of classes, as they are given in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mvprune.common.excerpts import listed, shown

BALANCED = "balanced"
_LARGEST = 1e6


def weights_problems(text: object) -> Iterator[str]:
    """What is wrong with weights whatever the classes are, as the rest of a sentence."""
    if text != BALANCED and (not isinstance(text, str) or not all(_is_weight(part) for part in text.split(","))):
        rule = f"must be {BALANCED}, or a number above 0, at most {_LARGEST:g}, for each class, separated by commas"
        yield f"{rule}, got {shown(text)}"


def number_problems(text: str, names: Sequence[str]) -> Iterator[str]:
    """What is wrong with the number of weights, which are right otherwise, for classes of these names, as the rest of a
    sentence."""
    if any(weights_problems(text)):
        return
    if text != BALANCED and (given := text.count(",") + 1) != len(names):
        rule = f"must be {BALANCED}, or a number for each of the classes {listed(names)}, in this order"
        yield f"{rule}, got {given} number{'s' * (given != 1)}"


def class_weights(text: str, counts: Sequence[int]) -> list[float]:
    """The weight of each class, for which the mean over the training examples is 1.

    Balanced, that of a class c is n / (k · n_c), for n examples, k classes that occur and n_c examples of c, as in
    scikit-learn. A class without examples has the weight 0.

    Args:
        text: "balanced" or numbers; one for which there are no problems.
        counts: the training examples of each class.
    """
    given = [1 / max(1, count) for count in counts] if text == BALANCED else [float(part) for part in text.split(",")]
    total = sum(weight * count for weight, count in zip(given, counts, strict=True))
    return [weight * sum(counts) / total * (count > 0) for weight, count in zip(given, counts, strict=True)]


def positive_weights(text: str, counts: Sequence[int], examples: int) -> list[float]:
    """The weight of the examples that have a label, for each label, beside 1 for those that have it not.

    Balanced, it is the number of examples without the label / the number of those with it, and 1 for a label that no
    example or every example has.

    Args:
        text: "balanced" or numbers; one for which there are no problems.
        counts: the training examples with each label.
        examples: all training examples.
    """
    if text != BALANCED:
        return [float(part) for part in text.split(",")]
    return [(examples - count) / count if 0 < count < examples else 1.0 for count in counts]


def _is_weight(text: str) -> bool:
    try:
        return "_" not in text and 0 < float(text) <= _LARGEST
    except ValueError:
        return False
