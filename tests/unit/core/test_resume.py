"""A compression that is interrupted, by a signal or by a kill, ends as one that is not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mvprune.data.loading import ClassificationData
from mvprune_core import (
    Callback,
    Progress,
    Result,
    Stopped,
    Teacher,
    Training,
    compress,
    load_task,
    request_stop,
)

QUICK = Training(max_steps=20, batch_size=32, learning_rate=5e-3)


class StopIn(Callback):
    """Asks for a stop in some phase, after some step."""

    def __init__(self, phase: str, step: int = 0) -> None:
        self.phase, self.step = phase, step
        self.seen: list[str] = []

    def on_phase(self, name: str) -> None:
        self.seen.append(name)
        if name == self.phase and self.step == 0:
            request_stop()

    def on_step(self, progress: Progress) -> None:
        if (progress.phase, progress.step) == (self.phase, self.step):
            request_stop()


def same(first: Result, second: Result) -> bool:
    one, two = first.model.state_dict(), second.model.state_dict()
    return first.metrics == second.metrics and all(torch.equal(value, two[name]) for name, value in one.items())


@pytest.mark.slow
def test_stops_in_every_phase_change_nothing(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    """With a teacher of logits and of hidden states."""
    teacher = Teacher(hidden_states=1.0)
    options: dict[str, Any] = {"density": 0.2, "method": "l0", "training": QUICK, "teacher": teacher}
    whole = compress(model_folder, data, **options)
    folder = tmp_path / "checkpoint"
    for phase, step in (("dense", 7), ("evaluating", 0), ("teaching", 0), ("pruning", 3), ("pruning", 15)):
        with pytest.raises(Stopped):
            compress(model_folder, data, checkpoint=folder, callback=StopIn(phase, step), **options)
    last = StopIn("nothing")
    assert same(whole, compress(model_folder, data, checkpoint=folder, callback=last, **options))
    assert last.seen == ["loading", "pruning", "evaluating"], "nothing that was done is done again"


@pytest.mark.slow
def test_a_stop_that_comes_too_late_stops_no_other_run(model_folder: Path, data: ClassificationData) -> None:
    class Late(Callback):
        def on_evaluate(self, phase: str, step: int, metrics: Mapping[str, float]) -> None:
            request_stop()

    options: dict[str, Any] = {"method": "magnitude", "density": 0.2, "training": QUICK, "dense_baseline": False}
    first = compress(model_folder, data, callback=Late(), **options)
    assert compress(model_folder, data, **options).metrics == first.metrics


def test_a_stop_ends_one_compression_alone(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.2,
        "training": QUICK,
        "dense_baseline": False,
        "checkpoint": tmp_path / "c",
    }
    with pytest.raises(Stopped):
        compress(model_folder, data, callback=StopIn("pruning", 10), **options)
    steps = Steps()
    compress(model_folder, data, callback=steps, **options)
    assert steps.seen == list(range(11, 21))


@pytest.mark.slow
def test_another_run_does_not_take_the_checkpoint_for_its_own(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"method": "magnitude", "density": 0.2, "training": QUICK, "dense_baseline": False}
    with pytest.raises(Stopped):
        compress(model_folder, data, checkpoint=tmp_path / "c", callback=StopIn("pruning", 10), **options)
    other = options | {"training": replace(QUICK, learning_rate=4e-3)}
    with pytest.warns(RuntimeWarning, match=r"pruning\.safetensors is of another run .* starts anew"):
        anew = compress(model_folder, data, checkpoint=tmp_path / "c", **other)
    assert same(compress(model_folder, data, **other), anew)


@pytest.mark.slow
def test_another_number_of_threads_is_another_run(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "method": "magnitude",
        "density": 0.2,
        "training": QUICK,
        "dense_baseline": False,
        "checkpoint": tmp_path / "c",
    }
    with pytest.raises(Stopped):
        compress(model_folder, data, callback=StopIn("pruning", 10), **options)
    torch.set_num_threads(2)
    steps = Steps()
    with pytest.warns(RuntimeWarning, match="threads"):
        compress(model_folder, data, callback=steps, **options)
    assert steps.seen[0] == 1


_KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from mvprune_core import Callback, Training, compress, load_task

class Die(Callback):
    def on_step(self, progress):
        if (progress.phase, progress.step) == ("pruning", 6):
            os.kill(os.getpid(), signal.SIGKILL)

torch.set_num_threads(1)
model, train, validation, checkpoint = map(Path, sys.argv[1:])
compress(
    model, load_task("sst2", train=train, validation=validation), method="magnitude", density=0.2, dense_baseline=False,
    training=Training(max_steps=20, batch_size=32, learning_rate=5e-3),
    callback=Die(), checkpoint=checkpoint, checkpoint_seconds=0.0,
)
"""


class Steps(Callback):
    """The steps that are made."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_step(self, progress: Progress) -> None:
        self.seen.append(progress.step)


@pytest.mark.slow
def test_a_run_that_was_killed_gives_the_same_artifact(
    model_folder: Path, data: ClassificationData, tmp_path: Path
) -> None:
    files = tmp_path / "train.tsv", tmp_path / "dev.tsv"
    for file, split in zip(files, (data.train, data.validation), strict=True):
        rows = [f"{text}\t{label}" for text, label in zip(split.texts, split.labels, strict=True)]
        file.write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    checkpoint = tmp_path / "checkpoint"
    command = [sys.executable, "-c", _KILLED, model_folder, *files, checkpoint]
    killed = subprocess.run(command, check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    task = load_task("sst2", train=files[0], validation=files[1])
    options: dict[str, Any] = {"method": "magnitude", "density": 0.2, "training": QUICK, "dense_baseline": False}
    steps = Steps()
    compress(model_folder, task, checkpoint=checkpoint, callback=steps, **options).save(tmp_path / "resumed")
    assert steps.seen == list(range(6, 21)), "nothing that was kept is done again"
    compress(model_folder, task, **options).save(tmp_path / "whole")
    resumed, whole = (tmp_path / name / "weights.safetensors" for name in ("resumed", "whole"))
    assert resumed.read_bytes() == whole.read_bytes()
