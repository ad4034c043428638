"""What the trainer's part of a job reports, in this process: events, lines of the log, notes."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workers.job_runs import folders, run

from mvprune.artifact import read_manifest
from mvprune.data.phases import Phase
from mvprune.v1 import job_pb2
from mvprune_core import Progress
from mvprune_workers.events import CheckpointEvent, MetricEvent, ProgressEvent, TrainerEvent
from mvprune_workers.position import Position, read_position
from mvprune_workers.reports import Reports


@pytest.mark.slow
def test_checkpoints_are_told_and_taken_up_with_another_factor(
    spec: job_pb2.CompressionSpec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after OUT_OF_MEMORY: the run goes on where it was, with more passes."""
    events = run(spec, tmp_path, seconds=0.0)
    steps = [event.step for event in events if isinstance(event, CheckpointEvent)]
    assert sorted(set(steps)) == list(range(1, 21)), "ten dense steps, then ten of pruning"
    assert steps == sorted(steps)
    progress = [event for event in events if isinstance(event, ProgressEvent)]
    phases = [name for name, _ in itertools.groupby(event.phase for event in progress)]
    assert phases == ["loading", "dense", "evaluating", "teaching", "pruning", "evaluating"]
    assert [event.phase for event in progress if event.eta_seconds is None] == ["loading", "dense"], "none is measured"
    assert progress[-1].eta_seconds == 0
    shutil.rmtree(folders(tmp_path).output)
    shutil.rmtree(folders(tmp_path).cache)
    caplog.set_level("INFO")
    events = run(spec, tmp_path, factor=2)
    assert [event for event in events if isinstance(event, CheckpointEvent)] == [], "there is nothing left to do"
    assert "pruning: resuming after step 10" in caplog.text
    assert read_manifest(folders(tmp_path).output).spec["training"]["accumulation_steps"] == 2


def test_examples_are_counted_where_each_is_read_once(tmp_path: Path) -> None:
    now, events = 0.0, list[TrainerEvent]()
    reports = Reports(events.append, Position(tmp_path / "position"), clock=lambda: now)
    reports.on_plan([Phase("teaching", examples=6400)])
    reports.on_phase("teaching")
    for done in range(64, 6401, 64):
        now += 0.1
        reports.on_examples("teaching", done, 6400)
    assert events[1] == ProgressEvent("teaching", 64, 6400, 1.0, None, pytest.approx(9.9))
    assert events[-1] == ProgressEvent("teaching", 6400, 6400, 1.0, None, pytest.approx(0))
    assert 30 <= len(events) <= 40, "four a second"
    assert not any(isinstance(event, MetricEvent) for event in events)


def test_a_long_run_reports_little(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now, events = 0.0, list[TrainerEvent]()
    reports = Reports(events.append, Position(tmp_path / "position"), clock=lambda: now)
    caplog.set_level("INFO")
    reports.on_plan([Phase("pruning", 10_000, 320_000), Phase("evaluating", examples=3_200)])
    reports.on_phase("pruning")
    for step in range(1, 10_001):
        now += 0.01
        reports.on_step(Progress("pruning", step, 10_000, 1.0 - step / 20_000, float("nan")))
        if step % 1000 == 1:
            assert read_position(tmp_path / "position") == ("pruning", step), "each step is known, reported or not"
    progress = [event for event in events if isinstance(event, ProgressEvent)]
    assert 395 <= len(progress) <= 405, "four a second"
    assert progress[0] == ProgressEvent("pruning", density=1.0)
    assert progress[-1] == ProgressEvent("pruning", 10_000, 10_000, 0.5, None, pytest.approx(1 / 3)), (
        "a third of 100 steps"
    )
    points = [event for event in events if isinstance(event, MetricEvent)]
    assert {point.metric for point in points} == {"pruning/density"}, "a loss that is no number is not recorded"
    assert len(points) == 500
    assert len(caplog.records) == 41


def test_a_note_is_a_line_of_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Reports(list[TrainerEvent]().append, Position(tmp_path / "position")).on_note("the label column was guessed")
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("WARNING", "note: the label column was guessed")
    ]


def test_notes_do_not_say_where_the_model_lies(spec: job_pb2.CompressionSpec, tmp_path: Path, tiny: Any) -> None:
    run(spec, tmp_path)
    notes = read_manifest(folders(tmp_path).output).notes
    assert any(note.startswith("new in the model, drawn from the seed: ") for note in notes)
    assert not any(str(tiny.models) in note for note in notes)
