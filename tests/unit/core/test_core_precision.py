"""What the setting `precision` means beside the training itself."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

from mvprune.data import ClassificationData
from mvprune_core import Training, compress, precision

BRIEF = Training(max_steps=4, batch_size=8, precision="bf16")


def prune(model: Path, data: ClassificationData) -> None:
    compress(model, data, density=0.5, training=BRIEF, dense_baseline=False)


def test_slow_bf16_is_told(model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not every CPU has slow bf16 to show.
    monkeypatch.setattr(precision, "slowdown", lambda device: 5.4)
    with pytest.warns(RuntimeWarning, match=r"training\.precision: bf16 given, but .* 5\.4 times as long"):
        prune(model_folder, data)


def test_fast_bf16_is_no_matter(model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: 0.6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        prune(model_folder, data)


def test_slowdown_is_a_ratio_of_times() -> None:
    found = precision.slowdown(torch.device("cpu"))
    assert math.isfinite(found)
    assert found > 0
