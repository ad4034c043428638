"""Runs whose result is the fine-tuned model itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.training_runs import Recorder
from transformers import BertForSequenceClassification

from mvprune.artifact import load, verify
from mvprune.artifact.inspection import inspect
from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, SharedBaseline, Teacher, Training, compress

QUICK = Training(max_steps=6, batch_size=32)
KEEP: dict[str, Any] = {"density": 1.0, "keep_fine_tuned": True, "training": QUICK, "dense_baseline": False}
EXACT: dict[str, Any] = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
NOTE = "the model was taken as fine-tuned for this data, and was not trained again (keep_fine_tuned)"


@pytest.fixture
def fine_tuned(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Path:
    """A model with a head for the data, and half of one matrix pruned."""
    torch.manual_seed(1)
    model = BertForSequenceClassification(bert_config(num_labels=2))
    with torch.no_grad():
        model.bert.encoder.layer[0].intermediate.dense.weight[:32] = 0.0
    return save(model, "fine-tuned")


@pytest.mark.parametrize("method", ["magnitude", "l0", "soft_movement"])
def test_a_fine_tuned_model_is_stored_as_it_is(
    fine_tuned: Path, data: ClassificationData, tmp_path: Path, method: str
) -> None:
    heard = Recorder()
    folders: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "cache": tmp_path / "cache"}
    result = compress(fine_tuned, data, method=method, callback=heard, **KEEP, **EXACT, **folders)
    assert heard.phases == ["loading", "evaluating"]
    assert heard.evaluations == [("pruning", 0, {"accuracy": result.metrics["eval/accuracy"]})]
    assert set(result.metrics) == {"eval/accuracy", "above_constant"}
    assert NOTE in result.notes
    original = BertForSequenceClassification.from_pretrained(fine_tuned).state_dict()
    result.save(tmp_path / "artifact")
    stored = load(tmp_path / "artifact").state_dict()
    assert all(torch.equal(stored[name], value) for name, value in original.items())

    manifest = verify(tmp_path / "artifact")
    assert manifest.spec["keep_fine_tuned"] is True
    counts = manifest.accounting
    assert (counts.target_density, counts.prunable_weights - counts.kept_weights) == (1.0, 32 * 32), "zeros stay zeros"
    assert inspect(tmp_path / "artifact").manifest == manifest
    [phase] = json.loads((tmp_path / "artifact" / "history.json").read_text())["phases"]
    assert (phase["name"], phase["total_steps"], phase["steps"]) == ("pruning", 0, [])
    assert [one["step"] for one in phase["evaluations"]] == [0]
    page = (tmp_path / "artifact" / "report.html").read_text()
    assert "Training</h3><figcaption>No training was recorded." in page
    assert "Density</h3><figcaption>No training was recorded." in page


@pytest.mark.slow
def test_a_model_that_is_not_fine_tuned_is_trained_as_usual(one_layer: Path, data: ClassificationData) -> None:
    heard = Recorder()
    result = compress(one_layer, data, method="magnitude", callback=heard, **KEEP)
    assert heard.phases == ["loading", "pruning", "evaluating"]
    assert NOTE not in result.notes
    plain = compress(one_layer, data, method="magnitude", **KEEP | {"keep_fine_tuned": False})
    assert all(torch.equal(value, plain.model.state_dict()[name]) for name, value in result.model.state_dict().items())


@pytest.mark.slow
def test_it_is_the_baseline_that_a_student_would_have_of_its_own(fine_tuned: Path, data: ClassificationData) -> None:
    options: dict[str, Any] = {"method": "magnitude", "density": 0.3, "teacher": None, "training": QUICK}
    own = compress(fine_tuned, data, **options).metrics
    known = {name: value for name, value in own.items() if not name.startswith(("delta_low/", "delta_high/"))}
    for keep, said in ((True, ""), (False, ", which fine-tuned the model again; the model itself was not evaluated")):
        other = compress(fine_tuned, data, method="magnitude", **KEEP | EXACT | {"keep_fine_tuned": keep, "seed": 7})
        result = compress(fine_tuned, data, dense_baseline=SharedBaseline("dense", other.info), **options)
        assert f"the dense metrics are those of dense{said}" in result.notes
        assert (result.metrics == known) is keep, "the bounds need the history of the dense model"


def test_what_it_does_not_go_with(fine_tuned: Path, data: ClassificationData) -> None:
    with pytest.raises(ValueError, match=r"keep_fine_tuned must be unset with a density below 1, here 0\.5"):
        compress(fine_tuned, data, **KEEP | {"density": 0.5})
    with pytest.raises(ValueError, match="keep_fine_tuned must be unset with a teacher"):
        compress(fine_tuned, data, teacher=Teacher(fine_tuned), **KEEP)


@pytest.mark.slow
def test_a_result_is_stored_anew_as_the_runtime_is_to_compute(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    """As a descent measures its dense model with int8 activations."""
    options: dict[str, Any] = {"method": "magnitude", "density": 1.0, "training": QUICK, "dense_baseline": False}
    dense = compress(one_layer, data, **options, **EXACT)
    dense.save(tmp_path / "dense")
    shared = SharedBaseline("dense", dense.info)
    again: dict[str, Any] = KEEP | EXACT | {"start_from": str(tmp_path / "dense"), "dense_baseline": shared}
    rounded = compress(one_layer, data, method="magnitude", activations="int8", **again)
    assert NOTE in rounded.notes
    weights = dense.model.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in rounded.model.state_dict().items())
    assert rounded.metrics["dense/accuracy"] == dense.metrics["eval/accuracy"]
    rounded.save(tmp_path / "rounded")
    assert verify(tmp_path / "rounded").activations == "int8"


@pytest.mark.slow
def test_a_result_for_other_classes_is_not_stored_anew(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"method": "magnitude", "density": 1.0, "training": QUICK, "dense_baseline": False}
    compress(one_layer, data, **options).save(tmp_path / "dense")
    other = replace(data, labels=("other", "classes"))
    with pytest.raises(CompressionError, match="start_from must be a model for the classes of the data"):
        compress(one_layer, other, method="magnitude", start_from=str(tmp_path / "dense"), **KEEP)
