"""When the files of a job were modified, which decides whether the result of an equal job is taken."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny, server_path

from mvprune.sources.references import Roots
from mvprune.v1 import job_pb2
from mvprune_service.api.checks.sweep_inputs import inputs_of
from mvprune_service.clock import SECOND, system_clock

YEAR = 365 * 24 * 3600


def spec_of(tiny: Tiny, **spec: Any) -> job_pb2.CompressionSpec:
    dataset = {"train": server_path(tiny.train), "validation": server_path(tiny.validation)}
    return job_pb2.CompressionSpec(
        **{"model": server_path(tiny.model), "task": "text-classification", "dataset": dataset} | spec
    )


@pytest.fixture
def roots(tiny: Tiny, tmp_path: Path) -> Roots:
    return Roots(models=tiny.models, allowed=(tiny.train.parent, tmp_path), buckets=("s3://ours",))


@pytest.mark.parametrize("touched", ["model", "train", "validation", "teacher", "mask"])
def test_the_newest_file_counts(tiny: Tiny, tmp_path: Path, roots: Roots, touched: str) -> None:
    teacher, mask = tmp_path / "teacher", tmp_path / "mask"
    for folder in (teacher, mask):
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_bytes((tiny.model / name).read_bytes())
    locked = {"mask_from": {"model": server_path(mask)}}
    spec = spec_of(tiny, teacher={"model": server_path(teacher)}, movement=None, locked_mask=locked)
    assert inputs_of(spec, roots).is_complete
    file = {
        "model": tiny.model / "config.json",
        "train": tiny.train,
        "validation": tiny.validation,
        "teacher": teacher / "model.safetensors",
        "mask": mask / "model.safetensors",
    }[touched]
    before = file.stat()
    later = before.st_mtime + YEAR
    os.utime(file, (later, later))
    try:
        assert inputs_of(spec, roots).modified_us == pytest.approx(later * SECOND, abs=SECOND)
    finally:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_file_that_cannot_be_read_may_have_changed(tiny: Tiny, roots: Roots) -> None:
    gone = spec_of(
        tiny, dataset={"train": server_path(tiny.train), "validation": server_path(tiny.validation) + ".gone"}
    )
    assert inputs_of(gone, roots).modified_us > system_clock() + 1000 * YEAR * SECOND


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"model": "bert-base-uncased"},
        {"model": "s3://ours/model"},
        {"teacher": {"model": "someone/teacher"}},
        {"dataset": {"hub_id": "stanfordnlp/imdb"}},
        {"dataset": {"train": "s3://ours/train.csv", "validation": "s3://ours/dev.csv"}},
        {"task": "sst2", "dataset": {}},
    ],
    ids=str,
)
def test_inputs_of_the_hub_and_of_buckets_are_not_checked(tiny: Tiny, roots: Roots, elsewhere: dict[str, Any]) -> None:
    assert not inputs_of(spec_of(tiny, **elsewhere), roots).is_complete
