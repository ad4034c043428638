"""The unpruned model in int8, with which the sparse runtime is compared."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import SIZES, inputs, pruned
from torch import nn

from mvprune.artifact import MANIFEST_FILE, load, read_manifest
from mvprune.artifact.structures import find_structures, shrink_to
from mvprune.cli.benchmark import _RIVALS
from mvprune.runtime import measure
from mvprune.runtime._rivals import RIVALS, CannotRunHere, rival, torch_int8, unpruned


def of_structure(artifact: Path, folder: Path, structure: str) -> Path:
    """The artifact, as one whose structures were pruned."""
    shutil.copytree(artifact, folder)
    manifest = dataclasses.replace(read_manifest(folder), spec={"task": "sst2", "structure": structure})
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    return folder


def base_of(folder: Path, layers: int) -> Path:
    transformers.BertConfig(**SIZES | {"num_hidden_layers": layers}).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_the_rivals_of_a_masked_model_are_those_of_its_own_shape(artifact: Path) -> None:
    found = measure(artifact, tokens=20, seconds=0.0)
    (int8,) = found.rivals
    assert (int8.name, int8.int8, int8.matrices, int8.reason) == ("torch_int8", 14, 14, "")
    assert int8.seconds is not None
    assert int8.ratio == int8.seconds / found.sparse_seconds > 0
    assert found.unpruned_seconds == found.dense_seconds
    assert measure(artifact, tokens=20, seconds=0.0, rivals=()).rivals == ()


def test_the_model_itself_is_not_quantized() -> None:
    model = pruned("Bert")
    with torch.inference_mode():
        before = model(**inputs()).logits
        rounded: Any = rival("torch_int8", model, inputs(), 1).call()
        assert torch.equal(model(**inputs()).logits, before)
    assert 0 < (rounded.logits - before).abs().max() < 0.1 * before.abs().max()


def test_a_model_that_would_stay_in_fp32_is_no_rival() -> None:
    with pytest.raises(CannotRunHere, match=r"torch quantizes nn.Linear only: 0% of this model's weights, embeddings"):
        rival("torch_int8", pruned("GPT2"), inputs(), 1)


def test_matrices_that_stay_in_fp32_are_counted() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(100, 8)
            self.first = nn.Linear(8, 8)
            self.second = nn.Parameter(torch.ones(8, 4))

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.first(self.words(input_ids)) @ self.second

    found = torch_int8(Mixed(), {"input_ids": torch.tensor([[1, 2]])})
    assert (found.int8, found.matrices) == (1, 2)


def test_what_a_rival_raises_is_its_reason() -> None:
    with pytest.raises(CannotRunHere, match="ValueError: You must specify exactly one of input_ids"):
        rival("torch_int8", pruned("Bert"), {"no_such": torch.tensor([1])}, 1)


def test_removed_heads_and_units_are_there_again(artifact: Path) -> None:
    model = load(artifact)
    manifest = dataclasses.replace(read_manifest(artifact), spec={"structure": "HEADS_AND_UNITS"})
    wanted = {name: value.shape for name, value in model.named_parameters()}
    shapes = {
        f"{each.output}.weight": (48, each.size * (1 if each.kind == "heads" else 7)) for each in find_structures(model)
    }
    shrink_to(model, shapes)
    before = torch.random.get_rng_state()
    whole = unpruned(model, manifest, None)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert {name: value.shape for name, value in whole.named_parameters()} == wanted
    assert not whole.training


@pytest.mark.slow
def test_removed_layers_are_as_many_as_the_base_has(artifact: Path, tmp_path: Path) -> None:
    folder, base = of_structure(artifact, tmp_path / "layers", "layers"), base_of(tmp_path / "base", 6)
    assert len(unpruned(load(folder), read_manifest(folder), base).bert.encoder.layer) == 6
    found = measure(folder, tokens=20, seconds=0.0, base=base)
    assert found.unpruned_seconds is not None
    assert found.unpruned_seconds > found.dense_seconds, "the pruned model has two of six layers"
    assert found.rivals[0].matrices == 38


def test_an_unknown_number_of_layers_is_a_reason(artifact: Path, tmp_path: Path) -> None:
    folder = of_structure(artifact, tmp_path / "layers", "LAYERS")
    found = measure(folder, tokens=20, seconds=0.0)
    assert found.unpruned_seconds is None
    assert found.rivals[0].seconds is None
    assert "how many layers the unpruned model has" in found.rivals[0].reason
    assert "--base FOLDER" in found.rivals[0].reason


def test_unknown_rivals_are_refused(artifact: Path) -> None:
    with pytest.raises(ValueError, match="rivals must be one of torch_int8, onnx_int8, got 'torch'"):
        measure(artifact, rivals=["torch"])
    assert list(_RIVALS) == list(RIVALS), "the names of the command"


@pytest.mark.slow
def test_onnx_runtime_is_a_rival(artifact: Path) -> None:
    int8 = measure(artifact, tokens=20, seconds=0.0, rivals=["onnx_int8"]).rivals[0]
    assert (int8.name, int8.int8, int8.matrices, int8.reason) == ("onnx_int8", 14, 14, "")
    assert int8.seconds is not None


def test_a_missing_package_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(CannotRunHere, match=r"needs the package onnxscript: pip install 'mvprune\[export\]'"):
        rival("onnx_int8", pruned("Bert"), inputs(), 1)
