"""Multi-label classification: metrics beside scikit-learn's, thresholds, and answers that are the same everywhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from tests.unit.core.conftest import BAD, GOOD, NEUTRAL
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertConfig, TextClassificationPipeline

from mvprune.artifact import read_manifest
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune_core import Training, compress, load_task
from mvprune_core.evaluation import evaluate
from mvprune_core.prediction import Predictor
from mvprune_core.tasks import objective_for
from mvprune_core.tasks.chance import check_labels
from mvprune_core.tasks.label_metrics import (
    best_thresholds,
    label_metrics,
    probabilities,
    sample_label_metric,
)
from mvprune_core.tasks.losses import BinaryCrossEntropy
from mvprune_core.tasks.multi_label import MultiLabelClassification, Scores
from mvprune_core.tasks.outputs import LabelLogits

TASK = get_task("multi-label-classification")
MEANT = {"blame": BAD, "high praise": GOOD, "numbers": NEUTRAL[:3]}
LEARNED = Training(max_steps=100, batch_size=32, learning_rate=5e-3)


def drawn(seed: int, labels: int = 3, texts: int = 50) -> tuple[Any, Any]:
    source = np.random.default_rng(seed)
    truth = source.random((texts, labels)) < source.uniform(0.1, 0.9, labels)
    truth[0], truth[1] = True, False
    return (source.normal(size=truth.shape) + 1.5 * truth - 1).astype(np.float32), truth


@pytest.mark.slow
@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_metrics_are_scikit_learns(seed: int, labels: int) -> None:
    logits, truth = drawn(seed, labels)
    thresholds = np.random.default_rng(seed).uniform(0.2, 0.8, labels)
    said = 1 / (1 + np.exp(-logits.astype(np.float64))) >= thresholds
    expected = {
        "f1_micro": sk.f1_score(truth, said, average="micro"),
        "f1_macro": sk.f1_score(truth, said, average="macro", zero_division=0.0),
        "subset_accuracy": sk.accuracy_score(truth, said),
        "roc_auc": sk.roc_auc_score(truth, logits, average="macro"),
        "average_precision": sk.average_precision_score(truth, logits, average="macro"),
    }
    assert label_metrics(TASK.metrics, logits, thresholds, truth) == pytest.approx(expected, abs=1e-9)
    counts = np.bincount(np.random.default_rng(seed).integers(50, size=50), minlength=50)
    again = (np.repeat(each, counts, axis=0) for each in (logits, truth))
    of_sample = label_metrics(TASK.metrics, next(again), thresholds, next(again))
    for name in TASK.metrics:
        metric = sample_label_metric(name, logits, thresholds, truth)
        assert metric is not None
        assert metric(counts.astype(float)) == pytest.approx(of_sample[name], abs=1e-9)
    assert sample_label_metric("bleu", logits, thresholds, truth) is None


@given(st.integers(0, 10**6))
def test_no_threshold_has_a_better_f1(seed: int) -> None:
    logits, truth = drawn(seed)
    logits = np.log(np.round(probabilities(logits), 3) + 1e-9) - np.log(1 - np.round(probabilities(logits), 3) + 1e-9)
    for label, threshold in enumerate(best_thresholds(logits, truth)):
        scores, true = probabilities(logits[:, label]), truth[:, label]
        f1 = [2 * (true & (scores >= one)).sum() / (true.sum() + (scores >= one).sum()) for one in (threshold, *scores)]
        assert f1[0] >= max(f1) - 1e-9
        assert round(threshold, 4) == threshold


def test_a_label_that_no_text_has_keeps_the_threshold_of_a_half() -> None:
    logits, truth = drawn(0)
    truth[:, 1] = False
    assert best_thresholds(logits, truth)[1] == 0.5
    assert "roc_auc" in label_metrics(TASK.metrics, logits, np.full(3, 0.5), truth)
    assert "roc_auc" not in label_metrics(TASK.metrics, logits, np.full(3, 0.5), np.zeros_like(truth))


def test_the_losses_are_sums_over_labels() -> None:
    logits, truth = (torch.from_numpy(each) for each in drawn(1, 2, 6))
    batch = {"labels": truth.float()}
    p = logits.double().sigmoid()
    cells = -torch.where(truth, 3.0 * torch.tensor([1.0, 2.0]) * p.log(), (1 - p).log())
    loss = BinaryCrossEntropy((3.0, 6.0))(SimpleNamespace(logits=logits), batch)
    assert float(loss) == pytest.approx(float(cells.mean()), rel=1e-5)
    teacher = logits.flip(0)
    q = (teacher.double() / 2).sigmoid()
    p = (logits.double() / 2).sigmoid()
    divergence = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
    found = LabelLogits().loss(logits, teacher, torch.ones(6, 1), 2.0)
    assert float(found) == pytest.approx(4 * float(divergence.mean()), rel=1e-5)
    assert float(LabelLogits().loss(logits, logits, torch.ones(6, 1), 2.0)) == pytest.approx(0, abs=1e-6)


def test_chance_and_other_names_are_seen() -> None:
    logits, truth = drawn(2, 3, 400)
    names = ("a", "b", "c")
    assert check_labels(logits, truth, names) is None
    swapped = check_labels(3 * logits[:, [1, 0, 2]] + 8 * truth[:, [1, 0, 2]], truth, names)
    assert swapped is not None
    assert swapped.fit == "its 'a' seems to be 'b', its 'b' seems to be 'a'"
    constant = check_labels(np.zeros_like(logits), truth, names)
    assert constant is not None
    assert constant.by_chance
    assert check_labels(logits, np.zeros_like(truth), names) is None


def objective_of(labels: list[list[int]], names: tuple[str, ...] = ("a", "b"), **options: Any) -> Any:
    split = Split(["good"] * len(labels), None, labels)
    return objective_for(ClassificationData(TASK, names, split, split), options)


def test_constant_answers_are_those_of_frequent_labels() -> None:
    objective = objective_of([[0], [0, 1], [0], [0], []])
    found = objective.constant_metrics(SimpleNamespace())
    both, first, none = found
    assert both["f1_micro"] == pytest.approx(2 * 5 / (10 + 5))
    assert first["f1_micro"] == pytest.approx(2 * 4 / (5 + 5))
    assert first["subset_accuracy"] == pytest.approx(3 / 5)
    assert (none["f1_micro"], none["subset_accuracy"]) == (0.0, 0.2)
    assert {one["roc_auc"] for one in found} == {0.5}


def test_thresholds_and_weights_follow_the_order_of_the_model() -> None:
    objective = objective_of([[0], [0, 1], [0], [0]], class_weights="2,5")
    config = BertConfig(id2label={0: "b", 1: "a"})
    config.problem_type = "multi_label_classification"
    config.label_thresholds = [0.9, 0.9]
    assert objective.configure(config)
    assert not hasattr(config, "label_thresholds"), "those of other data"
    assert objective.loss(config).weights == (5.0, 2.0)
    balanced = objective_of([[0], [0, 1], [0], []], class_weights="balanced")
    assert balanced.loss(config).weights == pytest.approx((3.0, 1 / 3))
    assert objective.training_examples
    logits = np.array([[2.0, -1.0], [3.0, -0.5], [1.0, -2.0], [1.5, -3.0]])
    [note] = objective.keep(config, Scores(logits, None))
    assert note.startswith("the thresholds of the labels are those with the best F1 on the validation examples")
    assert config.label_thresholds == pytest.approx([0.3232, 0.5], abs=1e-3)
    assert objective.fixed(Scores(logits, None)).thresholds == pytest.approx((0.5, 0.3232), abs=1e-3)
    assert not objective.configure(BertConfig(id2label={0: "b", 1: "a"})), "a head of classes that exclude each other"


def write(path: Path, count: int, seed: int, *, pairs: bool = False) -> Path:
    """Texts with words of any of several meanings: each has a label of its own."""
    source = random.Random(seed)
    with path.open("w") as file:
        for _ in range(count):
            labels = [label for label in MEANT if source.random() < 0.4]
            words = [*source.choices(NEUTRAL[3:], k=4), *(source.choice(MEANT[one]) for one in labels)]
            source.shuffle(words)
            row: dict[str, Any] = {"text": " ".join(words[:3]) if pairs else " ".join(words), "labels": labels}
            print(json.dumps(row | ({"text_pair": " ".join(["word9", *words[3:]])} if pairs else {})), file=file)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [False, True])
def test_a_pruned_model_answers_alike_everywhere(one_layer: Path, tmp_path: Path, *, pairs: bool) -> None:
    train, dev, test = (
        write(tmp_path / f"{name}.jsonl", count, seed, pairs=pairs)
        for name, count, seed in (("train", 300, 0), ("dev", 80, 1), ("test", 80, 2))
    )
    data = load_task(TASK.name, train=train, validation=dev, test=test)
    result = compress(one_layer, data, density=0.5, method="magnitude", training=LEARNED, metric="f1_macro")
    assert result.primary_metric == "f1_macro"
    assert result.metrics["eval/f1_macro"] > 0.7
    assert result.metrics["dense/f1_macro"] > 0.7
    assert {"test/f1_macro", "test_dense/f1_macro", "delta_low/f1_macro"} <= result.metrics.keys()
    [note] = [note for note in result.notes if note.startswith("the thresholds of the labels")]
    assert note.endswith("the test metrics are with the same thresholds")
    result.save(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    thresholds = dict(zip(config["id2label"].values(), config["label_thresholds"], strict=True))
    classes = read_manifest(tmp_path / "out").classes
    assert [one.name for one in classes] == [*data.labels]  # type: ignore[attr-defined]
    assert "## Classes" in (tmp_path / "out" / "README.md").read_text()

    for file, prefix in ((dev, "eval"), (test, "test")):
        found = evaluate(tmp_path / "out", file, runtime="sparse")
        assert found.metrics == pytest.approx(
            {name: result.metrics[f"{prefix}/{name}"] for name in found.metrics}, abs=1e-6
        )
    inputs = [{key: value for key, value in json.loads(line).items() if key != "labels"} for line in test.open()][:20]
    answers = Predictor.open(tmp_path / "out", runtime="sparse").predict(inputs)
    for answer in answers:
        assert answer["labels"] == [name for name in data.labels if answer["scores"][name] >= thresholds[name]]  # type: ignore[attr-defined]
    plain = export(tmp_path / "out", tmp_path / "plain", to="dense").folder
    model = AutoModelForSequenceClassification.from_pretrained(plain)
    pipeline: Any = TextClassificationPipeline(
        model=model, tokenizer=AutoTokenizer.from_pretrained(plain), top_k=None, device="cpu"
    )
    for given_one, answer in zip(inputs, answers, strict=True):
        scores = {one["label"]: one["score"] for one in pipeline([given_one])[0]}
        assert scores == pytest.approx(answer["scores"], abs=1e-4)
    if not pairs:
        return
    graph = onnxruntime.InferenceSession(export(tmp_path / "out", tmp_path / "onnx", to="onnx").folder / "model.onnx")
    read = {one.name for one in graph.get_inputs()}
    for given_one, answer in zip(inputs, answers, strict=True):
        tokens = pipeline.tokenizer(*given_one.values(), return_tensors="np")
        [logits] = graph.run(["logits"], {name: tokens.get(name, 0 * tokens["input_ids"]) for name in read})
        by_name = dict(zip(config["id2label"].values(), probabilities(logits[0]).tolist(), strict=True))
        assert by_name == pytest.approx(answer["scores"], abs=1e-4)


@pytest.mark.slow
def test_a_given_threshold_is_used_and_kept(model_folder: Path, tmp_path: Path) -> None:
    data = load_task(TASK.name, train=write(tmp_path / "a.jsonl", 60, 0), validation=write(tmp_path / "b.jsonl", 30, 1))
    quick = Training(max_steps=10, batch_size=8, learning_rate=1e-3)
    result = compress(model_folder, data, density=0.5, method="magnitude", training=quick, threshold=0.3)
    assert result.model.config.label_thresholds == [0.3] * 3
    assert not [note for note in result.notes if note.startswith("the thresholds")]
    with pytest.raises(ValueError, match=r"^class_weights must be balanced, or a number for each of"):
        compress(model_folder, data, density=0.5, training=quick, class_weights="1,2")
    with pytest.raises(ValueError, match="threshold must be unset for the task text-classification"):
        compress(
            model_folder,
            ClassificationData(
                get_task("text-classification"), ("a", "b"), *[Split(["x"] * 4, None, [0, 1, 0, 1])] * 2
            ),
            density=0.5,
            threshold=0.3,
        )
    assert MultiLabelClassification.flaw_of_head(("one",))
