"""Caches and checkpoints on a disk that is full."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.full_disk import full_disk

from mvprune.data.loading import ClassificationData
from mvprune_core import Callback, Training, compress
from mvprune_core.base.storage import Cache, Checkpoints

QUICK = Training(max_steps=6, batch_size=32)
DAY = 24 * 3600.0


def test_a_cache_on_a_full_disk_keeps_nothing(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    with full_disk(1000):
        found = cache.tensors("logits", "key", lambda: {"logits": torch.ones(1000)})
    assert found["logits"].sum() == 1000
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert cache.tensors("logits", "key", lambda: {"logits": torch.zeros(2)})["logits"].tolist() == [0, 0]


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "run", seconds=0)
    checkpoints.save("dense", {"weight": torch.ones(10)}, {"step": 1})
    with full_disk(1000), pytest.raises(OSError, match=r"dense\.safetensors"):
        checkpoints.save("dense", {"weight": torch.ones(1000)}, {"step": 2})
    found = checkpoints.load("dense")
    assert found is not None
    assert found[1]["step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["dense.safetensors"]


@pytest.mark.parametrize("kind", ["cache", "checkpoint"])
def test_what_a_killed_process_was_writing_is_gone_a_day_later(tmp_path: Path, kind: str) -> None:
    folder = tmp_path if kind == "checkpoint" else tmp_path / "tokens"
    folder.mkdir(exist_ok=True)
    names = (".pruning.safetensors.7", ".pruning.safetensors.8", ".mine.7")
    for name, age in zip(names, (2 * DAY, DAY / 2, 2 * DAY), strict=True):
        (folder / name).write_bytes(b"half")
        then = time.time() - age
        os.utime(folder / name, (then, then))
    if kind == "cache":
        Cache(tmp_path).tensors("tokens", "key", lambda: {"tokens": torch.ones(1)})
    else:
        Checkpoints(tmp_path, "run", seconds=0).save("key", {"tokens": torch.ones(1)}, {"step": 1})
    assert {path.name for path in folder.iterdir()} == {".pruning.safetensors.8", ".mine.7", "key.safetensors"}


def test_processes_of_one_number_do_not_share_a_file(tmp_path: Path) -> None:
    """Containers on one folder may have the same process numbers."""
    neighbour = tmp_path / f".key.safetensors.{os.getpid()}"
    neighbour.write_bytes(b"half")
    Checkpoints(tmp_path, "run", seconds=0).save("key", {"tokens": torch.ones(1)}, {"step": 1})
    assert neighbour.read_bytes() == b"half"


class Kept(Callback):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_checkpoint(self, steps: int) -> None:
        self.steps.append(steps)


def test_a_run_outlives_a_full_disk(model_folder: Path, data: ClassificationData, tmp_path: Path) -> None:
    options: dict[str, Any] = {"density": 0.3, "dense_baseline": False}
    whole = compress(model_folder, data, training=QUICK, **options)
    options |= {"checkpoint": tmp_path / "checkpoint", "checkpoint_seconds": 0.0, "callback": (kept := Kept())}
    with full_disk(20_000), pytest.warns(RuntimeWarning, match="the checkpoint cannot be written"):
        survived = compress(model_folder, data, training=QUICK, **options)
    assert survived.metrics == whole.metrics
    assert kept.steps == []
