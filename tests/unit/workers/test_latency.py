"""latency_ratio among the metrics of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mvprune.artifact import Manifest, verify
from mvprune.v1 import job_pb2
from mvprune_workers.folders import Folders
from mvprune_workers.job import run_job

from ...conftest import server_path


def manifest_of(tiny: Any, root: Path, monkeypatch: pytest.MonkeyPatch, *, delta: bool = False) -> Manifest:
    """What a job leaves whose latency is measured."""
    monkeypatch.setenv("MVPRUNE_MODELS", str(tiny.models))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tiny.train.parent))
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", target_density=0.25, delta=delta)
    spec.dataset.train, spec.dataset.validation = server_path(tiny.train), server_path(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 5
    folders = Folders(**{name: root / name for name in Folders.__dataclass_fields__})
    run_job(
        spec, folders, "cpu", lambda event: None, accumulation_factor=1, checkpoint_seconds=600.0, measure_latency=True
    )
    return verify(folders.output)


def test_it_is_measured_on_an_artifact_that_needs_its_base_too(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = manifest_of(tiny, tmp_path, monkeypatch, delta=True)
    assert manifest.metrics["latency_ratio"] > 0
    assert manifest.metrics["latency_ms"] > 0
    assert "eval/accuracy" in manifest.metrics


def test_a_result_that_cannot_be_measured_is_one_all_the_same(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr("mvprune.runtime._measure.measure", fail)
    manifest = manifest_of(tiny, tmp_path, monkeypatch)
    assert not {"latency_ratio", "latency_ms"} & manifest.metrics.keys()
    assert any("latency_ms could not be measured" in note for note in manifest.notes)
    assert "latency_ratio and latency_ms could not be measured" in caplog.text
    assert "no such instruction" in caplog.text
