"""Folders that can give a job its mask."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.numpy import save_file

from mvprune.artifact import MANIFEST_FILE, WEIGHTS_FILE, Base
from mvprune.artifact.masks import inspect_mask, is_artifact
from mvprune.sources.known_models import ModelSize
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import InvalidReference

from ...bert_folder import write_bert
from ...sparse_artifacts import WORDS, make_artifact, tensors


def test_a_model_is_counted_as_ever(tmp_path: Path) -> None:
    model = write_bert(tmp_path / "model")
    (model / MANIFEST_FILE).write_text("{}")
    assert not is_artifact(model), "a model may have a file of that name"
    assert inspect_mask(model) == inspect_model(model)


def test_an_artifact_is_counted_by_its_header(tmp_path: Path) -> None:
    make_artifact(tmp_path / "out")
    assert is_artifact(tmp_path / "out")
    encoder, embeddings = 16 + 32, 40
    assert inspect_mask(tmp_path / "out") == ModelSize(encoder + embeddings, encoder, prunable_weights=encoder)


def test_an_artifact_that_disagrees_with_its_manifest_is_refused(tmp_path: Path) -> None:
    make_artifact(tmp_path / "out")
    make_artifact(tmp_path / "other", layers=())
    (tmp_path / "other" / MANIFEST_FILE).replace(tmp_path / "out" / MANIFEST_FILE)
    with pytest.raises(InvalidReference, match=rf"out': {MANIFEST_FILE}: accounting: kept_weights must be 0"):
        inspect_mask(tmp_path / "out")


def test_a_delta_is_refused(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    save_file({WORDS: tensors()[WORDS]}, tmp_path / "base" / "model.safetensors")
    make_artifact(tmp_path / "out", base=Base(tmp_path / "base"))
    assert (tmp_path / "out" / WEIGHTS_FILE).is_file()
    with pytest.raises(InvalidReference, match=r"got a delta; `mvpctl export ARTIFACT OUT --to dense`"):
        inspect_mask(tmp_path / "out")
