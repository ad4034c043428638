"""The trainer's part, in this process: specs, events, and what is said about a job that cannot run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mvprune.v1 import job_pb2
from mvprune_core import CompressionError, Progress, Reason
from mvprune_workers.events import Event, MetricEvent, ProgressEvent
from mvprune_workers.job import Reports, complete_spec, run_job


@pytest.fixture
def spec(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> job_pb2.CompressionSpec:
    """A job on the tiny model that could run."""
    monkeypatch.setenv("MVPRUNE_MODELS", str(tiny.models))
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tiny.train.parent))
    monkeypatch.delenv("MVPRUNE_DATA", raising=False)
    spec = job_pb2.CompressionSpec(model="tiny-bert", task="text-classification", target_density=0.25)
    spec.dataset.train, spec.dataset.validation = str(tiny.train), str(tiny.validation)
    spec.magnitude.SetInParent()
    spec.training.max_steps = 10
    return spec


def _set(path: str, value: Any) -> Callable[[Any], None]:
    *parents, name = path.split(".")

    def change(message: Any) -> None:
        for parent in parents:
            message = getattr(message, parent)
        setattr(message, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (_set("model", "/elsewhere/model"), Reason.INVALID_MODEL, "'/elsewhere/model' is outside"),
        (_set("model", "../tiny-bert"), Reason.INVALID_MODEL, "'../tiny-bert' is a relative path"),
        (_set("task", "sst3"), Reason.INVALID_DATASET, "sst3"),
        (_set("dataset.train", "/etc/passwd"), Reason.INVALID_DATASET, "'/etc/passwd' is outside"),
        (_set("dataset.label_column", "mood"), Reason.INVALID_DATASET, "mood"),
        (_set("training.max_steps", 2), Reason.DENSITY_NOT_REACHED, "steps"),
        (_set("magnitude.schedule.cooldown", 0.0), Reason.DENSITY_NOT_REACHED, "schedule.cooldown"),
    ],
)
def test_what_a_job_cannot_run_with(
    spec: job_pb2.CompressionSpec, tmp_path: Path, change: Callable[[Any], None], reason: Reason, words: str
) -> None:
    change(spec)
    with pytest.raises(CompressionError) as caught:
        run_job(spec, tmp_path / "out", "cpu", lambda event: None)
    assert caught.value.reason == reason
    assert words in caught.value.message
    assert not (tmp_path / "out").exists()


def test_a_gpu_that_torch_cannot_use(spec: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch can use a GPU")
    with pytest.raises(CompressionError, match="--gpus 0") as caught:
        run_job(spec, tmp_path / "out", "cuda", lambda event: None)
    assert caught.value.reason == Reason.MISSING_DEPENDENCY


def test_the_recorded_spec_leaves_nothing_open(spec: job_pb2.CompressionSpec) -> None:
    used = {
        "training": {"max_steps": 10, "epochs": 3.0, "batch_size": 32, "learning_rate": 3e-5, "weight_decay": 0.0},
        "method": {"magnitude": {"schedule": {"warmup": 0.1, "cooldown": 0.2}}},
    }
    complete = complete_spec(spec, used)
    assert complete["training"] == {"max_steps": "10", "batch_size": 32, "learning_rate": 3e-5, "weight_decay": 0.0}
    assert complete["magnitude"] == {"schedule": {"warmup": 0.1, "cooldown": 0.2}}
    assert complete["dataset"]["train"] == spec.dataset.train
    assert not spec.training.HasField("batch_size")


def test_a_long_run_reports_little(caplog: pytest.LogCaptureFixture) -> None:
    now, events = 0.0, list[Event]()
    reports = Reports(events.append, clock=lambda: now)
    caplog.set_level("INFO")
    reports.on_phase("pruning")
    for step in range(1, 10_001):
        now += 0.01
        reports.on_step(Progress("pruning", step, 10_000, 1.0 - step / 20_000, float("nan"), 5.0))
    progress = [event for event in events if isinstance(event, ProgressEvent)]
    assert 395 <= len(progress) <= 405, "four a second"
    assert progress[0] == ProgressEvent("pruning", density=1.0)
    assert progress[-1] == ProgressEvent("pruning", 10_000, 10_000, 0.5, None, 5.0)
    points = [event for event in events if isinstance(event, MetricEvent)]
    assert {point.metric for point in points} == {"pruning/density"}, "a loss that is no number is not recorded"
    assert len(points) == 500
    assert len(caplog.records) == 41
