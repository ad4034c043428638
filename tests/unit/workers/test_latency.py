"""Latencies among the metrics of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mvprune.artifact import Manifest, verify
from mvprune.runtime import _rivals
from mvprune.v1 import job_pb2
from mvprune_workers.folders import Folders
from mvprune_workers.job import run_job

from ...conftest import server_path


def manifest_of(tiny: Any, root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Manifest:
    """What a job leaves whose latency is measured."""
    monkeypatch.setenv("MVPRUNE_MODELS", str(tiny.models))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tiny.train.parent))
    options = {"target_density": 0.25, **options}
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", **options)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 5
    folders = Folders(**{name: root / name for name in Folders.__dataclass_fields__})
    run_job(
        spec, folders, "cpu", lambda event: None, accumulation_factor=1, checkpoint_seconds=600.0, measure_latency=True
    )
    return verify(folders.output)


@pytest.mark.slow
def test_it_is_measured_on_an_artifact_that_needs_its_base_too(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = manifest_of(tiny, tmp_path, monkeypatch, delta=True).metrics
    assert metrics["latency_ms"] > 0
    assert metrics["dense_latency_ms"] == pytest.approx(metrics["latency_ratio"] * metrics["latency_ms"])
    assert metrics["dense_int8_latency_ms"] == pytest.approx(metrics["int8_latency_ratio"] * metrics["latency_ms"])
    assert "eval/accuracy" in metrics


@pytest.mark.slow
def test_rivals_have_the_layers_that_were_removed(tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = manifest_of(tiny, tmp_path, monkeypatch, target_density=0.5, structure="LAYERS").metrics
    assert metrics["dense_latency_ms"] > metrics["latency_ratio"] * metrics["latency_ms"]


@pytest.mark.slow
def test_a_rival_that_cannot_be_measured_is_missing_with_a_note(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setitem(_rivals.RIVALS, "torch_int8", fail)  # type: ignore[misc]
    manifest = manifest_of(tiny, tmp_path, monkeypatch)
    assert {"latency_ratio", "latency_ms", "dense_latency_ms"} <= manifest.metrics.keys()
    assert not {"dense_int8_latency_ms", "int8_latency_ratio"} & manifest.metrics.keys()
    assert "dense_int8_latency_ms was not measured: RuntimeError: no engine" in manifest.notes


def test_a_result_that_cannot_be_measured_is_one_all_the_same(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("mvprune.runtime._measure.measure", fail)
    manifest = manifest_of(tiny, tmp_path, monkeypatch)
    assert not [name for name in manifest.metrics if "latency" in name]
    assert any("latency_ms could not be measured" in note for note in manifest.notes)
    assert "latency_ratio and latency_ms could not be measured" in caplog.text
    assert "no such instruction" in caplog.text
