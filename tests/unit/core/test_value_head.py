"""Labels of a regression are standardised in training; the model, its metrics and its artifact have their scale."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.architectures import LEFT, RIGHT, build, examples
from tests.unit.core.test_resume import StopIn
from transformers import AutoModelForSequenceClassification

from mvprune.artifact import load
from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune_core import Result, Stopped, Teacher, Training, compress
from mvprune_core.models.value_head import NO_VALUE_HEAD, find_value_head
from mvprune_core.tasks.label_scale import LabelScale

QUICK = Training(max_steps=6, batch_size=32, learning_rate=5e-3)
OPTIONS: dict[str, Any] = {"density": 0.5, "method": "magnitude", "training": QUICK}
SCALE = LabelScale(mean=2.5, deviation=1.5)


def valued(data: ClassificationData, scale: float, shift: float) -> ClassificationData:
    """Some of the data with values in place of classes: scale · class + shift."""

    def of(split: Split, count: int) -> Split:
        return Split(split.texts[:count], None, [scale * label + shift for label in split.labels[:count]])

    return ClassificationData(get_task("text-regression"), (), of(data.train, 96), of(data.validation, 32))


def outputs(model: Any, result: Result) -> np.ndarray:
    model.eval()
    with torch.inference_mode():
        tokens = result.tokenizer(["word1 good word2", "bad word3", "fine"], return_tensors="pt", padding=True)
        return model(**tokens).logits[:, 0].numpy()


@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        ("bert", "classifier"),
        ("roberta", "classifier.out_proj"),
        ("t5", "classification_head.out_proj"),
        ("xlnet", "logits_proj"),
    ],
)
def test_the_layer_is_found_and_comes_back(architecture: str, name: str) -> None:
    model, texts = build(architecture, (RIGHT | LEFT)[architecture] | {"num_labels": 1}).eval(), examples(6, 9)
    head = find_value_head(model, SCALE, texts)
    assert head is not None
    assert head.name == name
    batch, before = texts.batch(np.array([0, 1]), torch.device("cpu")), {**model.state_dict()}
    before = {key: value.clone() for key, value in before.items()}
    with torch.inference_mode():
        values = model(**batch).logits
        with head.standardised(model):
            torch.testing.assert_close(model(**batch).logits, (values - 2.5) / 1.5, rtol=1e-5, atol=1e-5)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items()), "bit for bit"
    with head.trained(model, new=()):
        torch.testing.assert_close(model(**batch).logits, (values - 2.5) / 1.5, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model(**batch).logits, values, rtol=1e-6, atol=1e-6)


def test_a_layer_without_a_bias_cannot_hold_the_mean() -> None:
    assert find_value_head(build("gpt2", RIGHT["gpt2"] | {"num_labels": 1}), SCALE, examples(6)) is None


def test_values_that_are_alike_have_no_scale() -> None:
    assert LabelScale.of([2.0, 2.0]) is None
    assert LabelScale.of([1.0, 1.0 + 1e-9]) is None
    assert LabelScale.of([0.0, 1e-20]) == LabelScale(5e-21, 5e-21)


@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.slow)])
def test_the_scale_of_the_labels_changes_nothing_but_the_scale(
    one_layer: Path, data: ClassificationData, precision: Any
) -> None:
    """Dense model, teacher, pruning and the best of several evaluations; the values of a house are far from fp16's."""
    training = replace(QUICK, precision=precision, evaluate_every=2, keep_best=True, accumulation_steps=2)
    options = OPTIONS | {"training": training, "teacher": Teacher(hidden_states=0.0)}
    one = compress(one_layer, valued(data, 1.0, 0.0), **options)
    other = compress(one_layer, valued(data, 2.0**18, 3.0 * 2**18), **options)
    assert other.metrics == pytest.approx(one.metrics, abs=1e-3)
    expected = outputs(one.model, one) * 2.0**18 + 3.0 * 2**18
    np.testing.assert_allclose(outputs(other.model, other), expected, rtol=1e-3)
    losses = [[phase.loss for phase in result.history.phases] for result in (one, other)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


@pytest.mark.slow
def test_the_artifact_has_the_scale_of_the_data(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    result = compress(one_layer, valued(data, 1e6, 5e6), **OPTIONS, teacher=None, dense_baseline=False)
    [note] = [note for note in result.notes if note.startswith("training takes labels")]
    assert note.endswith("metrics, outputs and the stored model have the scale of the data, by classifier")
    values = outputs(result.model, result)
    assert np.all((values > 3e6) & (values < 8e6))
    result.save(tmp_path / "artifact")
    loaded = load(tmp_path / "artifact")
    np.testing.assert_allclose(outputs(loaded, result), values, rtol=1e-6)
    loaded.save_pretrained(tmp_path / "plain")
    plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "plain")
    np.testing.assert_allclose(outputs(plain, result), values, rtol=1e-6)
    for name, value in result.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
        assert torch.equal(plain.state_dict()[name], value)


@pytest.mark.slow
def test_a_fine_tuned_model_and_a_named_teacher_keep_their_values(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    """Training starts from the values of the model, and a teacher's are compared in the same scale: learning from
    itself, at a rate of next to nothing, changes nothing."""
    values = valued(data, 10.0, 100.0)
    dense = compress(one_layer, values, **OPTIONS | {"density": 1.0}, teacher=None, dense_baseline=False)
    dense.model.save_pretrained(tmp_path / "dense")
    dense.tokenizer.save_pretrained(tmp_path / "dense")
    exact = {"weight_dtype": "fp32", "embedding_dtype": "fp32", "density": 1.0}
    still = OPTIONS | exact | {"training": replace(QUICK, max_steps=2, learning_rate=1e-12)}
    for teacher in (Teacher(tmp_path / "dense", alpha=1.0), Teacher(alpha=1.0)):
        again = compress(tmp_path / "dense", values, **still, teacher=teacher)
        np.testing.assert_allclose(outputs(again.model, again), outputs(dense.model, dense), rtol=1e-5)
        assert again.history.phases[-1].loss[0] < 1e-6
        assert again.metrics["dense/pearson"] == pytest.approx(dense.metrics["eval/pearson"], abs=1e-3)


@pytest.mark.slow
def test_stops_change_nothing(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    values, folder = valued(data, 5.0, 20.0), tmp_path / "checkpoint"
    whole = compress(one_layer, values, **OPTIONS)
    for phase, step in (("dense", 3), ("dense", 6), ("evaluating", 0), ("teaching", 0), ("pruning", 4)):
        with pytest.raises(Stopped):
            compress(one_layer, values, checkpoint=folder, callback=StopIn(phase, step), **OPTIONS)
    resumed = compress(one_layer, values, checkpoint=folder, **OPTIONS)
    assert resumed.metrics == whole.metrics
    theirs = whole.model.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in resumed.model.state_dict().items())


def test_a_head_that_cannot_hold_the_mean_is_said(save: Any, data: ClassificationData) -> None:
    folder = save(build("gpt2", RIGHT["gpt2"]))
    still = OPTIONS | {"training": replace(QUICK, max_steps=4)}
    result = compress(folder, valued(data, 1.0, 0.0), **still, teacher=None, dense_baseline=False)
    assert f"the labels are not standardised: {NO_VALUE_HEAD}" in result.notes
