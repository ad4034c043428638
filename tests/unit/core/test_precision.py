"""What the setting `precision` means beside the training itself."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import pytest
import torch

from mvprune.data.loading import ClassificationData
from mvprune_core import Training, compress
from mvprune_core.base.settings import Precision
from mvprune_core.training import precision


def prune(model: Path, data: ClassificationData, given: Precision = "bf16") -> None:
    brief = Training(max_steps=4, batch_size=8, precision=given)
    compress(model, data, density=0.5, training=brief, dense_baseline=False)


def test_slow_bf16_is_told(model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch) -> None:
    # Not every CPU has slow bf16 to show.
    monkeypatch.setattr(precision, "slowdown", lambda device: 5.4)
    with pytest.warns(RuntimeWarning, match=r"^training\.precision should be fp32 .*, got bf16: .* 5\.4 times as long"):
        prune(model_folder, data)


def test_fast_bf16_is_no_matter(model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: 0.6)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=r"training\.precision", category=RuntimeWarning)
        prune(model_folder, data)


@pytest.mark.parametrize(("times", "told"), [(0.3, True), (0.9, False), (5.0, False)])
def test_fast_bf16_is_told_where_it_is_not_used(
    model_folder: Path,
    data: ClassificationData,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    times: float,
    told: bool,
) -> None:
    monkeypatch.setattr(precision, "slowdown", lambda device: times)
    caplog.set_level("INFO", logger="mvprune_core")
    prune(model_folder, data, "fp32")
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
