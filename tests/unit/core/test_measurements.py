"""Evaluations are kept while a run may ask for them again, and no longer."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.core.training_runs import SHORT

from mvprune.data.loading import ClassificationData
from mvprune_core import compress
from mvprune_core.runs.measurements import Measurement, Measurements
from mvprune_core.tasks.classification import Classification


def test_the_last_and_the_best_are_kept() -> None:
    kept, found = Measurements(), {name: Measurement({"accuracy": 0.5}, name) for name in "abcd"}
    assert kept.get("a") is kept.get(None) is None
    for name in "ab":
        kept.add(name, found[name])
    kept.keep_best()
    for name in "cd":
        kept.add(name, found[name])
    assert [kept.get(name) for name in "abcd"] == [None, found["b"], None, found["d"]]


@pytest.mark.slow
def test_a_run_holds_few_predictions_and_makes_none_twice(
    one_layer: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict, made, alive = Classification.predict, list[Any](), list[int]()

    def watched(*given: Any) -> Any:
        found = predict(*given)
        made.append(weakref.ref(found))
        alive.append(sum(each() is not None for each in made))
        return found

    monkeypatch.setattr(Classification, "predict", watched)
    training = replace(SHORT, max_steps=15, evaluate_every=1, keep_best=True)
    exact = {"weight_dtype": "fp32", "embedding_dtype": "fp32"}
    compress(one_layer, data, method="magnitude", density=0.2, training=training, teacher=None, **exact)
    assert len(made) == 2 * 15, "the results of both phases were evaluated when they were trained"
    assert max(alive) <= 3, "the last ones, those of the best model, and new ones"
