"""Jobs whose dense metrics come from the artifact of another job, in this process."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny
from tests.tiers import first_fast

from mvprune.artifact.comparison import compare
from mvprune.artifact.inspection import inspect
from mvprune.data.tasks import get_task
from mvprune.export import export
from mvprune.v1 import job_pb2
from mvprune_core import CompressionError
from mvprune_workers.events import MetricEvent, ProgressEvent, TrainerEvent
from mvprune_workers.folders import Folders
from mvprune_workers.job import run_job

JOB = "projects/p/jobs/dense"


@pytest.fixture
def dense(spec: job_pb2.CompressionSpec) -> job_pb2.CompressionSpec:
    """A job that fine-tunes the tiny model and prunes nothing."""
    spec.target_density = 1.0
    spec.training.max_steps, spec.training.batch_size = 12, 32
    return spec


def student_of(dense: job_pb2.CompressionSpec, **changes: Any) -> job_pb2.CompressionSpec:
    spec = job_pb2.CompressionSpec()
    spec.CopyFrom(dense)
    spec.MergeFrom(job_pb2.CompressionSpec(**({"target_density": 0.25, "teacher": {"job": JOB}} | changes)))
    return spec


def run(spec: job_pb2.CompressionSpec, root: Path, teacher: Path | None = None) -> tuple[Path, list[TrainerEvent]]:
    """Runs a job with `teacher` as the artifact that its worker fetched. Returns its artifact and its events."""
    folders = Folders(**{name: root / name for name in Folders.__dataclass_fields__})
    if teacher is not None:
        shutil.copytree(teacher, folders.teacher)
    events: list[TrainerEvent] = []
    run_job(spec, folders, "cpu", events.append, accumulation_factor=1, checkpoint_seconds=600.0)
    return folders.output, events


@pytest.mark.slow
def test_a_student_of_a_dense_job_takes_its_metrics_and_trains_nothing_dense(
    dense: job_pb2.CompressionSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    teacher, _ = run(dense, tmp_path / "dense")
    caplog.clear()
    caplog.set_level(logging.INFO)
    artifact, events = run(student_of(dense), tmp_path / "student", teacher)

    phases = [event.phase for event in events if isinstance(event, ProgressEvent)]
    assert list(dict.fromkeys(phases)) == ["loading", "teaching", "pruning", "evaluating"]
    assert not any(event.metric.startswith("dense/") for event in events if isinstance(event, MetricEvent))
    assert "phase: dense" not in caplog.text
    assert f"note: the dense metrics are those of {JOB}" in caplog.text

    taught, student = inspect(teacher).manifest, inspect(artifact).manifest
    found = student.metrics
    assert found["dense/accuracy"] == taught.metrics["eval/accuracy"]
    assert found["delta/accuracy"] == found["eval/accuracy"] - found["dense/accuracy"]
    assert f"the dense metrics are those of {JOB}" in student.notes
    history = json.loads((artifact / "history.json").read_text())
    assert [phase["name"] for phase in history["phases"]] == ["pruning"]
    page = (artifact / "report.html").read_text()
    assert f"dense {found['dense/accuracy']:.4f}" in page
    assert "Training of the dense baseline</h3><figcaption>No training was recorded." in page
    _, compared = compare([("teacher", taught), ("student", student)]).artifacts
    assert compared.metrics["dense/accuracy"] == found["dense/accuracy"]


@pytest.mark.parametrize(
    ("changes", "words"),
    first_fast(
        [
            ({"seed": 5, "training": {"max_steps": 10}}, "max_steps 12 in place of 10, seed 0 in place of 5"),
            ({}, ""),
        ]
    ),
)
def test_a_dense_job_with_other_settings_is_taken_and_they_are_said(
    dense: job_pb2.CompressionSpec, tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    teacher, _ = run(dense, tmp_path / "dense")
    artifact, _ = run(student_of(dense, **changes), tmp_path / "student", teacher)
    manifest = inspect(artifact).manifest
    assert manifest.metrics["dense/accuracy"] == inspect(teacher).manifest.metrics["eval/accuracy"]
    [note] = [note for note in manifest.notes if "dense metrics" in note]
    assert note == f"the dense metrics are those of {JOB}" + (f", which has other settings: {words}" if words else "")


@pytest.mark.parametrize("teacher", first_fast([{"none": True}, {"model": "tiny-bert"}]))
def test_the_baseline_of_a_job_that_is_not_its_teacher_needs_only_its_metrics(
    dense: job_pb2.CompressionSpec, tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, teacher: dict[str, Any]
) -> None:
    artifact, _ = run(dense, tmp_path / "dense")
    metrics_only = tmp_path / "metrics"
    metrics_only.mkdir()
    for name in ("manifest.json", "history.json"):
        shutil.copy(artifact / name, metrics_only)
    if "model" in teacher:
        teacher = {"model": str(export(artifact, tiny.models / f"{tmp_path.name}-teacher", to="dense").folder)}
    student, events = run(student_of(dense, teacher=teacher, baseline={"job": JOB}), tmp_path / "s", metrics_only)
    assert "dense" not in {event.phase for event in events if isinstance(event, ProgressEvent)}
    found = inspect(student).manifest
    assert found.metrics["dense/accuracy"] == inspect(artifact).manifest.metrics["eval/accuracy"]
    assert (
        found.metrics["delta_low/accuracy"] <= found.metrics["delta/accuracy"] <= found.metrics["delta_high/accuracy"]
    )
    assert found.spec["baseline"] == {"job": JOB}


def test_a_job_without_baseline_has_no_dense_metrics(dense: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    spec = student_of(dense, teacher={"none": True}, baseline={"none": True})
    artifact, events = run(spec, tmp_path / "student")
    assert "dense" not in {event.phase for event in events if isinstance(event, ProgressEvent)}
    own = {f"eval/{name}" for name in get_task("text-classification").metrics}
    assert set(inspect(artifact).manifest.metrics) == {*own, "above_constant"}


@pytest.mark.slow
def test_a_baseline_of_another_model_fails_the_job(dense: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    pruned, _ = run(student_of(dense, teacher={"none": True}), tmp_path / "pruned")
    spec = student_of(dense, teacher={"none": True}, baseline={"job": JOB})
    with pytest.raises(CompressionError, match=f"baseline must be a dense model .* got {JOB}, which has the density"):
        run(spec, tmp_path / "student", pruned)


@pytest.mark.slow
def test_a_student_of_a_pruned_job_trains_its_own_baseline(dense: job_pb2.CompressionSpec, tmp_path: Path) -> None:
    pruned = student_of(dense, teacher={"none": True}, target_density=0.5)
    teacher, _ = run(pruned, tmp_path / "pruned")
    artifact, events = run(student_of(dense), tmp_path / "student", teacher)
    assert "dense" in {event.phase for event in events if isinstance(event, ProgressEvent)}
    said = f"the dense metrics are those of this run's own dense baseline: {JOB} has the density 0.5"
    assert said in inspect(artifact).manifest.notes
