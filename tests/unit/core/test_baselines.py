"""Runs that take their dense metrics from the model of another run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.conftest import sentences
from tests.unit.core.training_runs import Recorder
from transformers import BertForSequenceClassification

from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Reason, Result, SharedBaseline, Teacher, Training, compress

LONG = Training(max_steps=11, batch_size=32, learning_rate=5e-3)  # more than five epochs of `few`
EXACT: dict[str, Any] = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
JOB = "projects/p/jobs/dense"


@pytest.fixture(scope="module")
def few(data: ClassificationData) -> ClassificationData:
    """The task with 64 examples to train on."""
    return replace(data, train=sentences(64, 1))


def dense(model: Path, data: ClassificationData, training: Training = LONG, **options: Any) -> Result:
    """The result of a run that prunes nothing."""
    run = {"density": 1.0, "method": "magnitude", "training": training, "dense_baseline": False} | EXACT
    return compress(model, data, **(run | options))


def shared(result: Result, *, is_teacher: bool = False, required: bool = False, **spec: Any) -> SharedBaseline:
    info = replace(result.info, spec={**result.info.spec, **spec})
    return SharedBaseline(JOB, info, is_teacher, required, result.history.resampled)


def folder_of(result: Result, folder: Path) -> Path:
    """The model as a folder for a teacher."""
    result.model.save_pretrained(folder)
    result.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_a_student_of_a_shared_baseline_is_that_of_its_own_baseline_and_trains_nothing_dense(
    one_layer: Path, few: ClassificationData, tmp_path: Path
) -> None:
    other = dense(one_layer, few)
    heard = Recorder()
    own = compress(one_layer, few, method="soft_movement", density=0.3, training=LONG)
    teacher = Teacher(folder_of(other, tmp_path / "teacher"))
    baseline = shared(other, is_teacher=True)
    options: dict[str, Any] = {"teacher": teacher, "dense_baseline": baseline, "callback": heard}
    options["method"] = "soft_movement"
    student = compress(one_layer, few, density=0.3, training=LONG, **options)

    assert heard.phases == ["loading", "teaching", "pruning", "evaluating"]
    assert [phase.name for phase in student.history.phases] == ["pruning"]
    assert student.metrics["dense/accuracy"] == other.metrics["eval/accuracy"]
    assert student.metrics["delta/accuracy"] == student.metrics["eval/accuracy"] - student.metrics["dense/accuracy"]
    assert f"the dense metrics are those of {JOB}" in student.notes
    assert student.metrics == own.metrics
    low, high = (student.metrics[f"{bound}/accuracy"] for bound in ("delta_low", "delta_high"))
    assert low <= student.metrics["delta/accuracy"] <= high
    assert [bool(one.history.resampled) for one in (other, own, student)] == [True, False, False]
    assert [one.info.spec["teacher"]["hidden_states"] for one in (own, student)] == [1.0, 1.0]
    for name, value in own.model.state_dict().items():
        assert torch.equal(student.model.state_dict()[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["trim_vocabulary", "trim_positions"])
def test_hidden_states_of_a_teacher_without_all_embeddings_are_not_matched_unasked(
    one_layer: Path, few: ClassificationData, tmp_path: Path, option: str
) -> None:
    other = dense(one_layer, few, **{option: True})
    teacher = Teacher(folder_of(other, tmp_path / "teacher"))
    options: dict[str, Any] = {"teacher": teacher, "dense_baseline": shared(other, is_teacher=True)}
    student = compress(one_layer, few, method="magnitude", density=0.3, training=LONG, **options)
    assert student.info.spec["teacher"]["hidden_states"] == 0.0


@pytest.mark.slow
def test_a_baseline_that_is_not_the_teacher_changes_no_default(
    one_layer: Path, few: ClassificationData, tmp_path: Path
) -> None:
    other = dense(one_layer, few)
    options: dict[str, Any] = {"method": "magnitude", "density": 0.3, "training": LONG, "dense_baseline": shared(other)}
    taught = compress(one_layer, few, teacher=Teacher(folder_of(other, tmp_path / "teacher")), **options)
    assert taught.info.spec["teacher"]["hidden_states"] == 0.0
    alone = compress(one_layer, few, teacher=None, **options)
    assert alone.metrics["dense/accuracy"] == taught.metrics["dense/accuracy"] == other.metrics["eval/accuracy"]


@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize("unlike", ["pruned", "model", "data"])
def test_a_model_that_cannot_be_the_baseline(
    one_layer: Path,
    save: Callable[..., Path],
    bert_config: Callable[..., Any],
    data: ClassificationData,
    unlike: str,
    required: bool,
) -> None:
    quick = Training(max_steps=6, batch_size=32)
    others = {
        "pruned": {"density": 0.5},
        "model": {"model": save(BertForSequenceClassification(bert_config()), "other")},
        "data": {"data": replace(data, validation=data.train)},
    }
    why = {"pruned": "has the density 0.5", "model": "was trained from another model", "data": "was trained on other"}
    baseline = shared(dense(**({"model": one_layer, "data": data, "training": quick} | others[unlike])))
    heard = Recorder()
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.3,
        "teacher": None,
        "training": quick,
        "callback": heard,
    }
    options["method"] = "soft_movement"
    options["dense_baseline"] = replace(baseline, required=required)
    if required:
        with pytest.raises(CompressionError, match=f"baseline must be a dense model .* got {JOB}, which {why[unlike]}"):
            compress(one_layer, data, **options)
        assert heard.phases == ["loading"]
        return
    result = compress(one_layer, data, **options)
    assert heard.phases == ["loading", "dense", "evaluating", "pruning", "evaluating"]
    assert [phase.name for phase in result.history.phases] == ["dense", "pruning"]
    [note] = [note for note in result.notes if "dense metrics" in note]
    assert note.startswith(f"the dense metrics are those of this run's own dense baseline: {JOB} {why[unlike]}")
    assert "dense/accuracy" in result.metrics


def test_a_required_baseline_is_a_matter_of_the_model(one_layer: Path, data: ClassificationData) -> None:
    pruned = dense(one_layer, data, Training(max_steps=6, batch_size=32), density=0.5)
    with pytest.raises(CompressionError) as raised:
        compress(one_layer, data, density=0.3, teacher=None, dense_baseline=shared(pruned, required=True))
    assert raised.value.reason is Reason.INVALID_MODEL


@pytest.mark.parametrize(
    ("training", "seed", "spec", "said"),
    first_fast(
        [
            ({"max_steps": 6}, 0, {}, ""),
            ({"max_steps": 6, "lr_density_exponent": 0.0, "accumulation_steps": 2}, 0, {}, ""),
            ({"max_steps": 6, "max_length": 32}, 0, {}, "max_length 64 in place of 32"),
            ({"max_steps": 6, "dropout": True}, 1, {}, "dropout false in place of true, seed 0 in place of 1"),
            ({"epochs": 0.5}, 0, {}, "max_steps 6 in place of unset, epochs "),
            # as in the manifests of jobs, which leave one of the two out
            ({"max_steps": 6}, 0, {"max_steps": "6", "epochs": None, "precision": "FP32"}, ""),
            (
                {"max_steps": 6},
                0,
                {"max_steps": "7", "precision": "BF16"},
                "max_steps 7 in place of 6, precision bf16 in",
            ),
        ],
        2,
    ),
)
def test_other_settings_are_said(
    one_layer: Path, data: ClassificationData, training: dict[str, Any], seed: int, spec: dict[str, Any], said: str
) -> None:
    quick = Training(max_steps=6, batch_size=32, max_length=64)
    other = dense(one_layer, data, quick)
    baseline = shared(other, training=other.info.spec["training"] | spec)
    chosen = Training(**({"batch_size": 32, "max_length": 64} | training))
    options: dict[str, Any] = {"method": "magnitude", "density": 0.3, "teacher": None, "training": chosen, "seed": seed}
    result = compress(one_layer, data, dense_baseline=baseline, **options)
    [note] = [note for note in result.notes if "dense metrics" in note]
    expected = f"the dense metrics are those of {JOB}"
    assert note.startswith(f"{expected}, which has other settings: {said}" if said else expected)
    assert (note == expected) is not bool(said)


def test_what_a_shared_baseline_does_not_go_with(one_layer: Path, data: ClassificationData) -> None:
    baseline = shared(dense(one_layer, data, Training(max_steps=6, batch_size=32)))
    with pytest.raises(ValueError, match="teacher must name a model or be None with a SharedBaseline"):
        compress(one_layer, data, density=0.3, dense_baseline=baseline)
    with pytest.raises(ValueError, match="dense_baseline must be unset with density 1"):
        compress(one_layer, data, density=1.0, dense_baseline=baseline)
