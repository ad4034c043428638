"""What the setting `precision` means beside the training itself."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from mvprune.data.loading import ClassificationData
from mvprune_core import Result, Training, compress
from mvprune_core.base.settings import Precision, Settings
from mvprune_core.base.state import digest_of
from mvprune_core.models.loading import Loaded
from mvprune_core.models.prunable import prunable_layers
from mvprune_core.runs import precision as choosing
from mvprune_core.tasks import Objective
from mvprune_core.training import precision

from .training_runs import same, settings


def prune(model: Path, data: ClassificationData, given: Precision = "bf16") -> None:
    brief = Training(max_steps=4, batch_size=8, precision=given)
    compress(model, data, density=0.5, training=brief, method="soft_movement", dense_baseline=False)


@pytest.mark.slow
def test_slow_bf16_is_told(one_layer: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not every CPU has slow bf16 to show.
    monkeypatch.setattr(precision, "slowdown", lambda device: 5.4)
    with pytest.warns(RuntimeWarning, match=r"^training\.precision should be fp32 .*, got bf16: .* 5\.4 times as long"):
        prune(one_layer, data)


def test_fast_bf16_is_no_matter(one_layer: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: 0.6)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"training\.precision", category=RuntimeWarning)
        prune(one_layer, data)


@pytest.mark.parametrize(("times", "told"), [(0.3, True), (0.9, False), (5.0, False)])
def test_fast_bf16_is_told_where_it_is_not_used(
    one_layer: Path,
    data: ClassificationData,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    times: float,
    told: bool,
) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: times)
    caplog.set_level("INFO", logger="mvprune_core")
    prune(one_layer, data, "fp32")
    assert ("0.30 times as long in bf16" in caplog.text) == told


def test_slowdown_is_a_ratio_of_times() -> None:
    found = precision.slowdown(torch.device("cpu"))
    assert math.isfinite(found)
    assert found > 0


@pytest.mark.parametrize(("bf16_seconds", "measured"), [(0.5, [128] * 8 + [512] * 8), (20.0, [128] * 8)])
def test_slow_bf16_is_measured_on_small_matrices_only(
    monkeypatch: pytest.MonkeyPatch, bf16_seconds: float, measured: list[int]
) -> None:
    sides = []

    def seconds(matrix: torch.Tensor) -> float:
        sides.append(len(matrix))
        return bf16_seconds if matrix.dtype == torch.bfloat16 else 1.0

    monkeypatch.setattr(precision, "_seconds", seconds)
    assert precision.slowdown.__wrapped__(torch.device("cpu")) == bf16_seconds
    assert sides == measured


SAID = "training is in bf16: so it was measured"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each measurement, which finds bf16 to be better, in runs of any length."""
    found: list[Settings] = []

    def choose(model: Any, weights: Any, examples: Any, loss: Any, settings: Settings, seed: int) -> precision.Choice:
        found.append(settings)
        return precision.Choice("bf16", "so it was measured")

    monkeypatch.setattr(choosing, "LEAST_WORK", 0)
    monkeypatch.setattr(choosing, "choose_precision", choose)
    return found


def compressed(model: Path, data: ClassificationData, **options: Any) -> Result:
    training = Training(max_steps=4, batch_size=8, **options.pop("training", {}))
    return compress(
        model, data, density=0.5, training=training, method="soft_movement", dense_baseline=False, **options
    )


@pytest.mark.slow
def test_a_run_that_names_no_precision_is_as_if_it_had_named_the_measured_one(
    one_layer: Path, data: ClassificationData, measured: list[Settings]
) -> None:
    auto = compressed(one_layer, data)
    given = compressed(one_layer, data, training={"precision": "bf16"})
    assert same(auto.model.state_dict(), given.model.state_dict())
    assert len(measured) == 1
    assert set(auto.info.notes) - set(given.info.notes) == {SAID}
    for result in (auto, given):
        assert result.info.spec["training"]["precision"] == result.used.training.precision == "bf16"


@pytest.mark.slow
def test_small_and_deterministic_runs_are_in_fp32(
    one_layer: Path, data: ClassificationData, measured: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compressed(one_layer, data, training={"deterministic": True}).used.training.precision == "fp32"
    monkeypatch.undo()
    assert compressed(one_layer, data).used.training.precision == "fp32"
    assert measured == []


@pytest.mark.slow
def test_a_run_that_resumes_keeps_the_precision(
    one_layer: Path, data: ClassificationData, measured: list[Settings], tmp_path: Path
) -> None:
    first = compressed(one_layer, data, checkpoint=tmp_path)
    again = compressed(one_layer, data, checkpoint=tmp_path, training={"accumulation_steps": 2})
    assert len(measured) == 1
    assert SAID in again.info.notes
    assert same(first.model.state_dict(), again.model.state_dict())


PASS = precision._Pass(1.0, 0.7, torch.tensor([1.0, 1.0]))


@pytest.mark.parametrize(
    ("bf16", "chosen"),
    [
        (PASS._replace(seconds=0.7), "bf16"),
        (PASS._replace(seconds=0.8), "fp32"),
        (PASS._replace(seconds=0.5, loss=0.71), "bf16"),
        (PASS._replace(seconds=0.5, loss=0.72), "fp32"),
        (PASS._replace(seconds=0.5, loss=math.nan), "fp32"),
        (PASS._replace(seconds=0.5, gradient=torch.tensor([1.0, 0.7])), "fp32"),
        (PASS._replace(seconds=0.5, gradient=torch.tensor([math.nan, 1.0])), "fp32"),
    ],
)
def test_bf16_has_to_be_faster_and_to_agree(
    loaded: Loaded, objective: Objective, monkeypatch: pytest.MonkeyPatch, bf16: precision._Pass, chosen: str
) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: 0.5)
    monkeypatch.setattr(precision._Passes, "run", lambda self, batch: bf16 if self.precision == "bf16" else PASS)
    assert choice_for(loaded, objective).precision == chosen


def test_measuring_changes_nothing(loaded: Loaded, objective: Objective, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: 0.5)
    before = digest_of(loaded.model), torch.get_rng_state()
    said = choice_for(loaded, objective).why
    assert (digest_of(loaded.model), torch.get_rng_state().tolist()) == (before[0], before[1].tolist())
    assert not loaded.model.training
    assert all(parameter.grad is None for parameter in loaded.model.parameters())
    assert said.startswith("a step in bf16 takes ")
    monkeypatch.setattr(precision, "slowdown", lambda device: 1.5)
    assert choice_for(loaded, objective) == (
        "fp32",
        "a product of matrices takes 1.50 times as long in bf16 as in fp32 here",
    )


def choice_for(loaded: Loaded, objective: Objective) -> precision.Choice:
    weights = [layer.weight for layer in prunable_layers(loaded.model, (), ()).values()]
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    return precision.choose_precision(
        loaded.model, weights, examples, objective.loss(loaded.config), settings(dropout=True), seed=0
    )
