"""Data files of a job: what the server reads of them, how often, and what it refuses."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Tiny, server_path
from tests.unit.service.api.test_options import refused

from mvprune.data.loading import load_files
from mvprune_service.api.checks import data_checks, specs
from mvprune_service.api.checks.data_checks import DataChecks


def test_a_test_file_has_other_examples_and_the_same_form(tiny: Tiny, tmp_path: Path) -> None:
    near = replace(tiny, train=tmp_path / "train.jsonl", validation=tmp_path / "dev.jsonl")
    near.train.write_text('{"text": "a", "label": "yes"}\n{"text": "b", "label": "no"}\n')
    near.validation.write_text('{"text": "c", "label": "yes"}\n')
    test = tmp_path / "test.jsonl"

    def said(file: Path, **more: Any) -> dict[str, str]:
        splits = {"train": near.train, "validation": near.validation, "test": file}
        return refused(near, dataset={name: server_path(path) for name, path in splits.items()} | more)

    remedy = "give examples that the search has not seen, or leave it out"
    for file in (near.train, near.validation):
        assert remedy in said(file)["job.spec.dataset.test"]
    for rows, words in (
        (near.validation.read_text(), "must have other examples than the validation file, got the same"),
        ('{"text": "d"}\n', "a column must be the label"),
        ('{"text": "d", "label": "odd"}\n', "odd"),
    ):
        test.write_text(rows)
        found = said(test)
        assert list(found) == ["job.spec.dataset.test"]
        assert words in found["job.spec.dataset.test"]
    test.write_text('{"text": "d", "label": "no"}\n')
    assert said(test) == {}
    assert "unset beside a test file" in said(test, hold_out=True)["job.spec.dataset.hold_out"]
    assert "job.spec.dataset.test" in said(tmp_path / "absent.jsonl")


def test_files_are_read_once(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def reading(task: Any, train: Path, *args: Any, **kwargs: Any) -> Any:
        read.append(train)
        return load_files(task, train, *args, **kwargs)

    monkeypatch.setattr(data_checks, "load_files", reading)
    checks = DataChecks()
    near = replace(tiny, train=tmp_path / "train.jsonl", validation=tmp_path / "dev.jsonl")
    near.validation.write_text('{"text": "a", "label": "yes"}\n')
    near.train.write_text('{"text": "a", "label": "yes"}\n{"text": "b"}\n')
    words = "'label' must have a value, got nothing; remove the row, or fill in its label"
    wrong = f"{near.train}, line 2: {words}"
    for _ in range(2):
        assert refused(near, checks=checks) == {"job.spec.dataset.train": wrong}
    assert len(read) == 1

    near.train.write_text('{"text": "a", "label": "yes"}\n{"text": "b", "label": "no"}\n')
    for _ in range(2):
        assert refused(near, checks=checks) == {}
    assert len(read) == 2
    assert "job.spec.dataset.train" in refused(
        near,
        checks=checks,
        dataset={"train": server_path(near.train), "validation": server_path(near.validation), "label_column": "class"},
    )
    near.validation.write_text('{"text": "a", "label": "odd"}\n')
    assert "job.spec.dataset.validation" in refused(near, checks=checks)

    monkeypatch.setattr(specs, "MAX_CHECKED_BYTES", 10)  # then it is the worker's
    assert refused(near, checks=checks) == {}
    near.validation.unlink()
    assert "job.spec.dataset.validation" in refused(near, checks=checks)


def test_compressed_files_count_as_what_they_may_expand_to(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("train.jsonl.gz", "dev.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"not json\n"))
    near = replace(tiny, train=tmp_path / "train.jsonl.gz", validation=tmp_path / "dev.jsonl.gz")
    assert "broken JSON" in refused(near)["job.spec.dataset.train"]
    monkeypatch.setattr(specs, "MAX_CHECKED_BYTES", 100 << 20)  # less than two may expand to
    assert refused(near) == {}
