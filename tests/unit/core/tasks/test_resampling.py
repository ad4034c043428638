"""The bootstrap of metrics: samples are weighted as if their examples were repeated, and two models' are paired."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvprune.artifact.history import Resampled
from mvprune.data.loading import PassageData, Question, QuestionAnsweringData, TaggedSplit, TokenClassificationData
from mvprune.data.tasks import get_task
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.metrics import compute_metrics
from mvprune_core.tasks.resampling import SAMPLES, interval, mean_of, resampled, sample_metric

OF_CLASSES, OF_VALUES = ("accuracy", "f1", "matthews_correlation"), ("pearson", "spearman")


@given(st.integers(0, 10**6), st.integers(2, 4))
def test_a_sample_is_measured_as_if_its_examples_were_repeated(seed: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    true = random.integers(classes, size=30)
    said = np.where(random.random(30) < 0.6, true, random.integers(classes, size=30))
    counts = np.bincount(random.integers(30, size=30), minlength=30)
    cases = [(name, said, true) for name in OF_CLASSES if name != "f1" or classes <= 2]
    values = random.integers(5, size=30) / 2  # with ties
    cases += [(name, values + random.normal(size=30), values) for name in OF_VALUES]
    for name, predictions, references in cases:
        metric = sample_metric(name, predictions, references)
        assert metric is not None
        expected = compute_metrics([name], np.repeat(predictions, counts), np.repeat(references, counts))[name]
        assert metric(counts.astype(float)) == pytest.approx(expected, abs=1e-9)


def of_task(name: str) -> tuple[Any, Any]:
    """An objective, and predictions of which some are right."""
    task = get_task(name)
    if name.startswith("squad"):
        accepted: list[Sequence[tuple[str, int]]] = [(("a b", 0),), (("c", 4), ("c d", 4)), (), (("e f g", 8),)]
        given = tuple(Question(str(n), "?", "a b c d e f g", tuple(each)) for n, each in enumerate(accepted))
        return objective_for(QuestionAnsweringData(task, (), given)), ["a b", "d", "x", "f"]
    if name == "ner":
        labels = ("O", "B-X", "I-X")
        split = TaggedSplit([["w"] * 3] * 3, [[1, 2, 0], [0, 1, 1], [0, 0, 0]])
        data = TokenClassificationData(task, labels, TaggedSplit([], []), split)
        return objective_for(data), [["B-X", "I-X", "O"], ["O", "B-X", "I-X"], ["B-X", "O", "O"]]
    return objective_for(PassageData(task, (), ("text",))), [(9.5, 3, 8), (11.0, 2, 7), (4.0, 6, 8)]


@pytest.mark.parametrize("name", ["squad", "squad_v2", "ner", "masked-lm"])
def test_the_metric_of_all_examples_is_that_of_the_task(name: str) -> None:
    objective, predictions = of_task(name)
    examples, metric = objective.sample_metric(predictions)
    whole = objective.measure(predictions)[objective.data.task.primary_metric]
    assert metric(np.ones(examples)) == pytest.approx(whole)
    values = resampled(examples, metric).values
    assert len(values) == SAMPLES
    assert min(values) < whole < max(values)


def test_a_metric_of_another_name_has_no_samples() -> None:
    assert sample_metric("bleu", np.ones(3), np.ones(3)) is None


def test_the_interval_of_paired_accuracies_is_mcnemars() -> None:
    random = np.random.default_rng(0)
    dense = random.random(2000) < 0.9
    pruned = np.where(random.random(2000) < 0.06, ~dense, dense)
    worse, better = np.mean(dense & ~pruned), np.mean(~dense & pruned)
    difference = better - worse
    error = math.sqrt((better + worse - difference**2) / 2000)
    found = interval(difference, *(resampled(2000, mean_of(each)) for each in (pruned, dense)))
    assert found is not None
    assert found == pytest.approx((difference - 1.96 * error, difference + 1.96 * error), abs=0.3 * error)


def test_only_the_same_examples_are_compared() -> None:
    ten, eleven = (resampled(count, mean_of(np.arange(count) % 2)) for count in (10, 11))
    assert interval(0.0, ten, eleven) is None
    assert interval(0.0, ten, None) is None
    assert interval(0.0, ten, Resampled.of(10, [0.5])) is None
    assert interval(0.0, ten, ten) == (0.0, 0.0)
    assert interval(0.25, ten, ten) == (0.0, 0.25), "the interval holds the difference"
