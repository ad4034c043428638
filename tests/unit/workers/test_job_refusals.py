"""What is said about a job that cannot run, by the trainer's part in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workers.job_runs import folders, run

from mvprune.v1 import job_pb2
from mvprune_core import CompressionError, Reason
from mvprune_workers.job import check_device


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
        (_set("model", "/elsewhere/model"), Reason.INVALID_MODEL, "allowed folders"),
        (_set("model", "../tiny-bert"), Reason.INVALID_MODEL, "got the relative path '../tiny-bert'"),
        (_set("task", "sst3"), Reason.INVALID_DATASET, "sst3"),
        (_set("dataset.train", "/etc/passwd"), Reason.INVALID_DATASET, "got '/etc/passwd'"),
        (_set("dataset.label_column", "mood"), Reason.INVALID_DATASET, "mood"),
        (_set("training.max_steps", 1), Reason.DENSITY_NOT_REACHED, "steps"),
        (_set("magnitude.schedule.cooldown", 0.0), Reason.DENSITY_NOT_REACHED, "schedule.cooldown"),
    ],
)
def test_what_a_job_cannot_run_with(
    spec: job_pb2.CompressionSpec, tmp_path: Path, change: Callable[[Any], None], reason: Reason, words: str
) -> None:
    change(spec)
    with pytest.raises(CompressionError) as caught:
        run(spec, tmp_path)
    assert caught.value.reason == reason
    assert words in caught.value.message
    assert not folders(tmp_path).output.exists()


def test_data_is_not_read_where_links_lead_outside(
    spec: job_pb2.CompressionSpec, tmp_path: Path, linked_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPRUNE_DATA", str(linked_data))
    spec.task = "sst2"
    spec.ClearField("dataset")
    with pytest.raises(CompressionError, match="leads outside") as caught:
        run(spec, tmp_path)
    assert caught.value.reason == Reason.INVALID_DATASET


@pytest.mark.parametrize(("discreet", "shows"), [("", True), ("1", False)])
def test_a_failure_quotes_a_file_only_where_its_reader_may_choose_the_roots(
    spec: job_pb2.CompressionSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discreet: str, shows: bool
) -> None:
    monkeypatch.setenv("MVPRUNE_DISCREET", discreet)
    monkeypatch.setenv("MVPRUNE_ROOTS", str(tmp_path))
    file = tmp_path / "train.jsonl"
    file.write_text('{"text": "a", "label": "Vlw0Xk8"}\n{"text": "b", "label": 3}\n')
    spec.dataset.train = spec.dataset.validation = str(file)
    with pytest.raises(CompressionError) as caught:
        run(spec, tmp_path)
    assert ("Vlw0Xk8" in caught.value.message) is shows
    spec.dataset.label_column = "absent"
    with pytest.raises(CompressionError) as caught:
        run(spec, tmp_path)
    assert ("text, label" in caught.value.message) is shows


@pytest.mark.parametrize(("max_length", "enough"), [(8, True), (64, False)])
def test_the_length_of_a_run_is_that_of_the_examples_not_of_the_lines(
    spec: job_pb2.CompressionSpec, tiny: Any, tmp_path: Path, max_length: int, enough: bool
) -> None:
    words = json.loads((tiny.models / "tiny-bert" / "tokenizer.json").read_text())["model"]["vocab"]
    word = next(word for word in words if word.isalpha())
    for name, text in (("train", f"{word} " * 60), ("validation", word)):
        path = tiny.train.with_name(f"{name}.txt")
        path.write_text(text)
        setattr(spec.dataset, name, str(path))
    spec.task, spec.model = "masked-lm", "tiny-bert"
    spec.training.ClearField("max_steps")
    spec.training.epochs, spec.training.batch_size, spec.training.max_length = 1, 4, max_length
    if enough:
        run(spec, tmp_path)
        return
    with pytest.raises(CompressionError, match="of 1 steps") as caught:
        run(spec, tmp_path)
    assert caught.value.reason == Reason.DENSITY_NOT_REACHED


def test_a_gpu_that_torch_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this torch can use a GPU")
    with pytest.raises(CompressionError, match="--gpus 0") as caught:
        check_device("cuda", 1)
    assert caught.value.reason == Reason.MISSING_DEPENDENCY
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_device("cuda", 2)
    with pytest.raises(CompressionError, match="given 3 GPUs, but torch of this worker sees 2; submit with --gpus 2"):
        check_device("cuda", 3)
