"""Runs whose method goes on from the dense model that they have trained, or that another run has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.test_baselines import EXACT, dense, folder_of, shared
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.test_value_head import valued

from mvprune.data.loading import ClassificationData
from mvprune_core import OBERT, Result, Schedule, Stopped, Teacher, Training, compress

SHORT = Training(max_steps=20, batch_size=32, learning_rate=5e-3)
METHOD = OBERT(schedule=Schedule("one_shot", pruning_start=0.5), gradients=4)
OPTIONS: dict[str, Any] = EXACT | {"method": METHOD, "density": 0.3, "training": SHORT, "teacher": Teacher()}


def goes_on(result: Result) -> bool:
    return any(note.startswith("pruning goes on from the dense model and its head") for note in result.notes)


@pytest.mark.parametrize("labels", first_fast(["classes", "values"]))
def test_a_run_goes_on_from_its_own_dense_model_as_from_an_artifact(
    one_layer: Path, data: ClassificationData, tmp_path: Path, labels: str
) -> None:
    data = valued(data, 2.0, 3.0) if labels == "values" else data
    dense(one_layer, data, SHORT).save(tmp_path / "dense")
    own = compress(one_layer, data, **OPTIONS | {"teacher": None})
    options = OPTIONS | {"teacher": None, "dense_baseline": False}
    other = compress(one_layer, data, start_from=str(tmp_path / "dense"), **options)
    assert goes_on(own)
    assert not goes_on(other)
    for name, value in other.model.state_dict().items():
        assert torch.equal(own.model.state_dict()[name], value)


@pytest.mark.slow
def test_a_shared_dense_model_that_teaches_gives_the_same_result(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    own, trained = compress(one_layer, data, **OPTIONS), dense(one_layer, data, SHORT)
    teacher = Teacher(folder_of(trained, tmp_path / "teacher"))
    student = compress(
        one_layer, data, dense_baseline=shared(trained, is_teacher=True), **OPTIONS | {"teacher": teacher}
    )
    assert goes_on(student)
    assert student.metrics == own.metrics


def test_a_run_from_a_trained_model_is_not_judged_by_the_loss_that_it_begins_with(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    dense(one_layer, data, SHORT).save(tmp_path / "dense")
    slow = OPTIONS | {"training": replace(SHORT, learning_rate=1e-7), "density": 0.1}
    result = compress(one_layer, data, start_from=str(tmp_path / "dense"), **slow | {"teacher": None})
    (pruning,) = [phase for phase in result.history.phases if phase.name == "pruning"]
    assert pruning.loss[-1] > pruning.loss[0]
    assert not any("did not fall" in note for note in result.notes)


@pytest.mark.slow
def test_after_an_interruption_the_dense_model_is_not_trained_again(
    one_layer: Path, data: ClassificationData, tmp_path: Path
) -> None:
    whole = compress(one_layer, data, **OPTIONS)
    with pytest.raises(Stopped):
        compress(one_layer, data, checkpoint=tmp_path, callback=StopIn("pruning", 15), **OPTIONS)
    last = StopIn("nothing")
    assert same(whole, compress(one_layer, data, checkpoint=tmp_path, callback=last, **OPTIONS))
    assert last.seen == ["loading", "pruning", "evaluating"]


@pytest.mark.slow
@pytest.mark.parametrize("of", ["original", "fine-tuned"])
def test_the_learning_rate_is_lower_where_a_trained_model_is_pruned(
    one_layer: Path, data: ClassificationData, tmp_path: Path, of: str
) -> None:
    options = OPTIONS | {"training": Training(max_steps=2, batch_size=8)}
    folder = one_layer if of == "original" else folder_of(dense(one_layer, data, SHORT), tmp_path / "tuned")
    result, usual = (compress(folder, data, **options | method) for method in ({}, {"method": "magnitude"}))
    rates = [one.info.spec["training"]["learning_rate"] for one in (result, usual)]
    assert rates == [pytest.approx(0.3 * 3e-4), 3e-4]
    assert result.metrics["dense/accuracy"] == usual.metrics["dense/accuracy"]
    assert result.history.phases[0] == usual.history.phases[0] or of == "fine-tuned"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"method": "soft_movement"}, {"teacher": None, "dense_baseline": False}],
    ids=["method", "no dense model"],
)
def test_pruning_starts_from_the_original_model_otherwise(
    one_layer: Path, data: ClassificationData, options: dict[str, Any]
) -> None:
    assert not goes_on(compress(one_layer, data, **OPTIONS | options))
