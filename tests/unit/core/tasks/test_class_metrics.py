"""Metrics of classes beside scikit-learn's and beside formulas of their own; classes that weigh more in the loss."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.utils.class_weight import compute_class_weight

from mvprune.artifact.class_results import ClassResult
from mvprune.data.kinds.classification.weights import class_weights, number_problems, weights_problems
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune_core import Training, compress
from mvprune_core.runs.baselines import SharedBaseline
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.class_metrics import class_metrics, confusion
from mvprune_core.tasks.losses import WeightedCrossEntropy

NAMES = get_task("text-classification").metrics
BINARY = {"f1", "precision", "recall"}
QUICK: Any = {"training": Training(max_steps=10, batch_size=8, learning_rate=1e-3), "method": "magnitude"}


def drawn(seed: int, classes: int, examples: int = 60) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    true = np.concatenate([np.arange(classes), random.integers(classes, size=examples - classes)])
    logits = random.normal(size=(examples, classes)) * 2 + 1.5 * np.eye(classes)[true]
    return logits.astype(np.float32), true


@pytest.mark.slow
@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_metrics_are_scikit_learns(seed: int, classes: int) -> None:
    logits, true = drawn(seed, classes)
    scores = np.exp(logits.astype(np.float64))
    scores /= scores.sum(axis=1, keepdims=True)
    said = scores.argmax(axis=1)
    expected = {
        "accuracy": sk.accuracy_score(true, said),
        "f1_macro": sk.f1_score(true, said, average="macro"),
        "f1_weighted": sk.f1_score(true, said, average="weighted"),
        "balanced_accuracy": sk.balanced_accuracy_score(true, said),
        "matthews_correlation": sk.matthews_corrcoef(true, said),
        "average_precision": sk.average_precision_score(
            np.eye(classes)[true] if classes > 2 else true, scores if classes > 2 else scores[:, 1], average="macro"
        ),
        "roc_auc": sk.roc_auc_score(true, scores if classes > 2 else scores[:, 1], multi_class="ovr"),
    }
    if classes == 2:
        expected |= {
            "f1": sk.f1_score(true, said),
            "precision": sk.precision_score(true, said, zero_division=0.0),
            "recall": sk.recall_score(true, said),
        }
    found = class_metrics(NAMES, logits, true)
    assert found.keys() == {*expected, "calibration_error"}
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-9)
    error, sure = 0.0, scores.max(axis=1)
    for low in range(15):
        inside = (sure > low / 15) & (sure <= (low + 1) / 15)
        if inside.any():
            error += inside.mean() * abs((said == true)[inside].mean() - sure[inside].mean())
    assert found["calibration_error"] == pytest.approx(error, abs=1e-9)
    assert (confusion(said, true, classes) == sk.confusion_matrix(true, said)).all()


@given(st.integers(0, 10**6), st.integers(2, 4))
@pytest.mark.slow
def test_a_sample_is_ranked_as_if_its_examples_were_repeated(seed: int, classes: int) -> None:
    logits, true = drawn(seed, classes)
    logits = np.round(logits)  # some are equal
    random = np.random.default_rng(seed)
    counts = 1 + np.bincount(random.integers(60, size=60), minlength=60)  # each class is in the sample
    data = ClassificationData(
        get_task("text-classification"), tuple("abcd"[:classes]), Split([], None, []), Split([""] * 60, None, [*true])
    )
    for name in ("roc_auc", "average_precision"):
        objective = objective_for(replace(data, task=replace(data.task, primary_metric=name)))
        examples, metric = objective.sample_metric(logits)  # type: ignore[misc]
        assert examples == 60
        expected = class_metrics([name], np.repeat(logits, counts, axis=0), np.repeat(true, counts))[name]
        assert metric(counts.astype(float)) == pytest.approx(expected, abs=1e-9)
        few = np.zeros(60)
        few[0] = 3
        assert np.isfinite(metric(few)), "a sample of one class"


def test_scores_that_round_to_one_still_rank() -> None:
    logits = np.array([[0, 200], [0, 100], [0, 300], [0, 50]], dtype=np.float32)
    assert class_metrics(["roc_auc"], logits, np.array([1, 0, 1, 0])) == {"roc_auc": 1.0}


def test_metrics_that_the_data_does_not_have_are_left_out() -> None:
    logits, _ = drawn(0, 3)
    found = class_metrics(NAMES, logits, np.zeros(60, dtype=int))
    assert found.keys() == {*NAMES} - {*BINARY, "roc_auc", "average_precision"}


def test_one_class_has_no_correlation_and_no_warning() -> None:
    logits = np.array([[1.0, 0.0]] * 4, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = class_metrics(NAMES, logits, np.zeros(4, dtype=int))
    assert (found["matthews_correlation"], found["accuracy"], found["f1"]) == (0.0, 1.0, 0.0)


def test_the_results_of_classes_are_those_of_the_confusion_matrix() -> None:
    logits, true = drawn(1, 3)
    said = logits.argmax(axis=1)
    names = ("a", "b", "c")
    found = ClassResult.of_confusion(names, confusion(said, true, 3).tolist())
    precision, recall, f1, examples = sk.precision_recall_fscore_support(true, said)
    assert [one.name for one in found] == [*names]
    assert [one.examples for one in found] == [*examples]
    for name, expected in (("precision", precision), ("recall", recall), ("f1", f1)):
        assert [getattr(one, name) for one in found] == pytest.approx([*expected])
    assert [one.row for one in found] == [tuple(row) for row in sk.confusion_matrix(true, said)]


def test_balanced_weights_are_scikit_learns_and_have_the_mean_1() -> None:
    true = np.array([0] * 12 + [1] * 3 + [2] * 5)
    found = class_weights("balanced", np.bincount(true).tolist())
    assert found == pytest.approx(compute_class_weight("balanced", classes=np.arange(3), y=true))
    given_ones = class_weights("1,4,2", [12, 3, 5])
    assert given_ones == pytest.approx([20 / 34, 80 / 34, 40 / 34])
    assert class_weights("balanced", [4, 0]) == [1.0, 0.0]


@pytest.mark.parametrize("text", ["equal", "1,0", "1,-2", "1,,2", "nan,1", "inf,1", "1_0,1"])
def test_wrong_weights_are_refused(text: str) -> None:
    assert [*weights_problems(text)]


def test_there_is_a_weight_for_each_class() -> None:
    assert not [*number_problems("1,2", ("a", "b"))]
    assert not [*number_problems("a:1", ("a", "b"))], "said of the weights by themselves"
    [problem] = number_problems("1,2,3", ("a", "b"))
    assert problem == "must be balanced, or a number for each of the classes a, b, in this order, got 3 numbers"


def test_a_class_that_weighs_twice_counts_twice_and_parts_of_a_batch_add_up() -> None:
    logits, labels = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 1, 0, 1, 0])
    loss = WeightedCrossEntropy((0.5, 2.0))
    own = [-(0.5, 2.0)[y] * row.log_softmax(0)[y] for row, y in zip(logits, labels.tolist(), strict=True)]
    whole = loss(SimpleNamespace(logits=logits), {"labels": labels})
    assert whole == pytest.approx(sum(map(float, own)) / 6)
    halves = [loss(SimpleNamespace(logits=logits[part]), {"labels": labels[part]}) for part in (slice(3), slice(3, 6))]
    assert whole == pytest.approx(float(sum(halves)) / 2)


def unbalanced() -> ClassificationData:
    train = Split(
        [f"word{n % 4} good" if n % 5 else "bad word1" for n in range(40)], None, [int(n % 5 == 0) for n in range(40)]
    )
    return ClassificationData(get_task("text-classification"), ("no", "yes"), train, train)


def test_weights_follow_the_classes_of_the_model() -> None:
    objective = objective_for(unbalanced(), {"class_weights": "balanced"})
    config = SimpleNamespace(id2label={0: "yes", 1: "no"})
    loss = objective.loss(config)
    assert isinstance(loss, WeightedCrossEntropy)
    assert loss.weights == pytest.approx((40 / (2 * 8), 40 / (2 * 32)))


def test_a_run_compares_by_the_metric_that_was_asked_for(one_layer: Path) -> None:
    result = compress(one_layer, unbalanced(), density=0.5, metric="f1_macro", class_weights="balanced", **QUICK)
    assert result.primary_metric == "f1_macro"
    assert {"eval/f1_macro", "delta_low/f1_macro", "dense/roc_auc"} <= result.metrics.keys()
    assert result.metrics["above_constant"] == pytest.approx(result.metrics["eval/f1_macro"] - 64 / 72 / 2)
    assert [one.name for one in result.info.classes] == ["no", "yes"]
    assert math.fsum(one.examples for one in result.info.classes) == 40
    assert result.info.spec["metric"] == "f1_macro"
    assert result.info.spec["class_weights"] == "balanced"


@pytest.mark.slow
def test_the_classes_of_the_dense_model_stand_beside_those_of_the_result(one_layer: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"density": 0.5, "metric": "roc_auc", "cache": tmp_path, **QUICK}
    found = [compress(one_layer, unbalanced(), **options).info for _ in range(2)]
    assert found[0].dense_classes == found[1].dense_classes, "from the cache"
    for name, classes in (("eval", found[0].classes), ("dense", found[0].dense_classes)):
        assert sum(one.f1 for one in classes) / 2 == pytest.approx(found[0].metrics[f"{name}/f1_macro"])
        assert sum(one.right for one in classes) / 40 == pytest.approx(found[0].metrics[f"{name}/accuracy"])
    low, high = (found[0].metrics[f"delta_{side}/roc_auc"] for side in ("low", "high"))
    assert low <= found[0].metrics["delta/roc_auc"] <= high
    dense = compress(one_layer, unbalanced(), density=1, metric="roc_auc", **QUICK)
    shared = SharedBaseline("dense", dense.info)
    again = compress(one_layer, unbalanced(), **options, dense_baseline=shared, teacher=None).info
    assert again.dense_classes == dense.info.classes


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metric": "recall"}, r"^metric must be one of accuracy, f1, .*, got 'recall'"),
        ({"metric": "f1_micro"}, r"^metric must be one of .*, got 'f1_micro'"),
        ({"class_weights": "1,2,3"}, r"^class_weights must be balanced, or a number for each of the classes"),
        ({"class_weights": "even"}, r"^class_weights must be balanced, or a number above 0"),
    ],
)
def test_wrong_options_are_refused_before_training(one_layer: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compress(one_layer, unbalanced(), density=0.5, **QUICK, **options)
