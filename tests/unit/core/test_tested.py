"""Results are measured once on examples that nothing is chosen by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.core.conftest import sentences
from tests.unit.core.training_runs import SHORT

from mvprune.data.loading import ClassificationData
from mvprune_core import SharedBaseline, compress
from mvprune_core.tasks.classification import Classification

EXACT = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}


@pytest.fixture
def tested(data: ClassificationData) -> ClassificationData:
    return replace(data, test=replace(data, validation=sentences(100, 9)))


@pytest.mark.slow
def test_both_models_are_measured_on_the_test_examples_once(
    one_layer: Path, tested: ClassificationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict, read = Classification.predict, list[int]()

    def watched(self: Classification, *given: object) -> object:
        read.append(len(self.data.validation))
        return predict(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Classification, "predict", watched)
    training = replace(SHORT, max_steps=15, evaluate_every=5)
    options = {"density": 0.2, "method": "magnitude", "training": training, "teacher": None, "cache": tmp_path, **EXACT}
    result = compress(one_layer, tested, **options)
    assert read.count(100) == 2
    metrics = result.metrics
    assert metrics["test_delta/accuracy"] == metrics["test/accuracy"] - metrics["test_dense/accuracy"]
    assert metrics["test_delta_low/accuracy"] <= metrics["test_delta/accuracy"] <= metrics["test_delta_high/accuracy"]
    plain = compress(one_layer, replace(tested, test=None), **options)
    names = [name for name in metrics if name.startswith("test")]
    assert plain.metrics == {name: value for name, value in metrics.items() if name not in names}
    assert compress(one_layer, tested, **options).metrics == metrics, "from the cache"


@pytest.mark.slow
def test_a_dense_model_is_compared_on_the_test_examples_that_it_has_seen(
    one_layer: Path, tested: ClassificationData
) -> None:
    dense = compress(one_layer, tested, density=1.0, training=SHORT, dense_baseline=False, method="magnitude", **EXACT)
    assert set(dense.history.resampled) == {tested.fingerprint, tested.test.fingerprint if tested.test else ""}
    baseline = SharedBaseline("dense", dense.info, resampled=dense.history.resampled)

    def pruned(data: ClassificationData) -> dict[str, float]:
        options = {"density": 0.2, "training": SHORT, "teacher": None, "dense_baseline": baseline, **EXACT}
        return dict(compress(one_layer, data, method="magnitude", **options).metrics)

    found = pruned(tested)
    assert found["test_dense/accuracy"] == dense.metrics["test/accuracy"]
    assert "test_delta_low/accuracy" in found
    other = replace(tested, test=replace(tested, validation=sentences(100, 10)))
    assert {name for name in pruned(other) if name.startswith("test")} == {"test/accuracy"}
