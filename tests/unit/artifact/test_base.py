"""A delta artifact's base model is found on this machine by its name, and nothing is downloaded."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import save_file
from tests.sparse_artifacts import SHA256, WORDS, make_artifact, tensors

from mvprune.artifact import WEIGHTS_FILE, ArtifactError, Base, Manifest, ModelSource
from mvprune.artifact.base import find_base, open_base
from mvprune.artifact.header import open_header
from mvprune.artifact.weights import read_weights

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folders are allowed, and no network is there."""
    for name in ("MVPRUNE_MODELS", "MVPRUNE_DATA", "MVPRUNE_ROOTS"):
        monkeypatch.delenv(name, raising=False)

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A models folder with the base, tiny."""
    (tmp_path / "models" / "tiny").mkdir(parents=True)
    save_file({WORDS: tensors()[WORDS]}, tmp_path / "models" / "tiny" / "model.safetensors")
    return tmp_path / "models"


def delta(models: Path, name: str, revision: str = "") -> tuple[Path, Manifest]:
    """A delta artifact whose manifest calls its base by a name."""
    folder = models.parent / "out"
    manifest = make_artifact(folder, base=Base(models / "tiny"), model=ModelSource(name, revision, SHA256))
    return folder / WEIGHTS_FILE, manifest


def test_by_name_and_by_path(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, manifest = delta(models, "tiny")
    monkeypatch.setenv("MVPRUNE_MODELS", str(models))
    assert find_base(manifest.model) == models / "tiny"
    found = read_weights(weights, open_base(open_header(weights), manifest.model, None))
    assert (found[WORDS] == tensors()[WORDS]).all()
    path = str(models / "tiny")
    assert find_base(ModelSource(path, "", SHA256)) == models / "tiny"
    for elsewhere in ("/elsewhere/tiny", "server:/elsewhere/tiny", f"upload:{'0' * 64}/tiny"):
        assert find_base(ModelSource(elsewhere, "", SHA256)) == models / "tiny", "a folder on another machine"
    monkeypatch.delenv("MVPRUNE_MODELS")
    monkeypatch.setenv("MVPRUNE_ROOTS", str(models))
    assert find_base(ModelSource(path, "", SHA256)) == models / "tiny"
    assert find_base(ModelSource(f"server:{path}", "", SHA256)) == models / "tiny"


def test_a_base_that_a_client_sent_must_be_given() -> None:
    """No hub has it, whatever it is called."""
    said = r"its base model, 'my-model \(upload 0{12}\)', which is not on this machine; .*: give .*--base FOLDER"
    with pytest.raises(ArtifactError, match=said):
        find_base(ModelSource(f"upload:{'0' * 64}/my-model", "", SHA256))


@pytest.mark.parametrize(
    "name", ["tiny", "org/tiny", "/tmp", "../tiny", "s3://bucket/tiny", "server:/tmp", "\x1b[31m", "tiny/../tiny"]
)
def test_what_is_not_there_is_said(models: Path, name: str) -> None:
    """Without a folder that is allowed no path of a manifest is followed."""
    _, manifest = delta(models, name)
    with pytest.raises(ArtifactError, match=r"it needs its base model.*set MVPRUNE_MODELS.*--base") as caught:
        find_base(manifest.model)
    assert "\x1b" not in str(caught.value)


def test_a_path_outside_is_not_followed(models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MVPRUNE_MODELS", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    outside, inside = (str(folder / "tiny") for folder in (models, tmp_path / "other"))
    said = f"{outside}', which is no path in a folder of MVPRUNE_MODELS or MVPRUNE_ROOTS, .*; set .*--base FOLDER"
    for name in (outside, f"server:{outside}"):
        with pytest.raises(ArtifactError, match=said):
            find_base(ModelSource(name, "", SHA256))
    with pytest.raises(ArtifactError, match="is not on this machine"):
        find_base(ModelSource(inside, "", SHA256))


def test_the_hubs_cache(models: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / REVISION
    shutil.copytree(models / "tiny", snapshot)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    assert find_base(ModelSource("org/tiny", REVISION, SHA256)) == snapshot
    for revision in ("", "f" * 40):
        with pytest.raises(ArtifactError, match=r"'org/tiny'.*which is not on this machine"):
            find_base(ModelSource("org/tiny", revision, SHA256))


def test_only_a_delta_asks_for_it(models: Path, tmp_path: Path) -> None:
    manifest = make_artifact(tmp_path / "whole")
    header = open_header(tmp_path / "whole" / WEIGHTS_FILE)
    assert open_base(header, manifest.model, None) is None
    assert open_base(header, manifest.model, tmp_path / "nowhere") is None


def test_another_model_under_that_name(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, manifest = delta(models, "tiny")
    monkeypatch.setenv("MVPRUNE_MODELS", str(models))
    save_file({WORDS: tensors()[WORDS] + 1}, models / "tiny" / "model.safetensors")
    with pytest.raises(ArtifactError, match=r"must have the SHA-256 [0-9a-f]{64}; give the same model"):
        read_weights(weights, open_base(open_header(weights), manifest.model, None))


def referring(folder: Path, base: dict[str, Any], aliases: dict[str, str]) -> Path:
    """A weights file that holds nothing, and refers to tensors of a base."""
    described = {"aliases": aliases, "base": base, "packed": {}, "version": 3}
    text = json.dumps({"__metadata__": {"mvprune": json.dumps(described)}}).encode()
    (folder / WEIGHTS_FILE).write_bytes(len(text).to_bytes(8, "little") + text)
    return folder / WEIGHTS_FILE


def test_a_base_bounds_what_is_taken_from_it(models: Path, tmp_path: Path) -> None:
    """References and further names of them cost a file nothing, and a model memory."""
    one = {"dtype": "F32", "name": WORDS, "sha256": SHA256, "shape": [10, 4]}
    source = ModelSource("tiny", "", SHA256)
    right = open_header(
        referring(tmp_path, {str(number): one for number in range(4)}, {f"a{n}": "0" for n in range(4)})
    )
    assert open_base(right, source, models / "tiny") is not None
    for base, aliases in (
        ({str(number): one for number in range(9)}, {}),
        ({"0": one}, {f"a{n}": "0" for n in range(8)}),
    ):
        header = open_header(referring(tmp_path, base, aliases))
        with pytest.raises(ArtifactError, match="the base model's tensors must have at most 320 elements, got 360"):
            open_base(header, source, models / "tiny")


def test_a_base_vouches_for_shapes_before_a_model_is_built(models: Path, tmp_path: Path) -> None:
    huge = {"dtype": "F32", "name": WORDS, "sha256": SHA256, "shape": [2**40, 4]}
    header = open_header(referring(tmp_path, {"w": huge}, {}))
    with pytest.raises(ArtifactError, match=r"the base model must have .* of F32 \[1099511627776, 4\]"):
        open_base(header, ModelSource("tiny", "", SHA256), models / "tiny")
