"""Plain from_pretrained on an artifact, after `import mvprune.hf`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import mvprune.hf  # noqa: F401 (registers the format)
from mvprune.artifact import WEIGHTS_FILE, Base, Values, load
from mvprune.artifact.header import open_header

INPUTS = torch.arange(24).reshape(2, 12)


def same_state(found: Any, expected: Any) -> bool:
    left, right = found.state_dict(), expected.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


@pytest.mark.parametrize(
    "kind",
    [
        "BertForSequenceClassification",
        "BertForQuestionAnswering",
        "BertForTokenClassification",
        "BertForMaskedLM",  # its decoder is tied to its embeddings
    ],
)
def test_from_pretrained_gives_the_model(pruned_model: Callable[..., tuple[Any, Path]], kind: str) -> None:
    model, folder = pruned_model(kind)
    auto = getattr(transformers, kind.replace("Bert", "AutoModel"))
    loaded, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(report[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert type(loaded) is type(model)
    assert loaded.dtype == torch.float32
    assert same_state(loaded, model)
    assert same_state(load(folder), model)
    with torch.no_grad():
        for found, expected in zip(loaded(INPUTS).to_tuple(), model(INPUTS).to_tuple(), strict=True):
            assert torch.equal(found, expected)
    if kind == "BertForMaskedLM":
        assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


@pytest.mark.parametrize("values", Values)
def test_every_coding_and_the_dtype_that_is_asked_for(
    pruned_model: Callable[..., tuple[Any, Path]], values: Values
) -> None:
    model, folder = pruned_model("BertForSequenceClassification", values)
    auto = transformers.AutoModelForSequenceClassification
    assert same_state(auto.from_pretrained(folder), model)
    assert same_state(auto.from_pretrained(folder, dtype=torch.bfloat16), model.bfloat16())


def test_without_its_head(pruned_model: Callable[..., tuple[Any, Path]]) -> None:
    model, folder = pruned_model("BertForSequenceClassification")
    assert same_state(transformers.AutoModel.from_pretrained(folder), model.bert)


def test_what_was_loaded_is_saved_as_a_plain_model(
    pruned_model: Callable[..., tuple[Any, Path]], tmp_path: Path
) -> None:
    model, folder = pruned_model("BertForSequenceClassification")
    auto = transformers.AutoModelForSequenceClassification
    loaded = auto.from_pretrained(folder)
    loaded(INPUTS, labels=torch.tensor([0, 1])).loss.backward()
    loaded.save_pretrained(tmp_path / "plain")
    config = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert not {"quantization_config", "transformers_weights"} & config.keys()
    assert same_state(auto.from_pretrained(tmp_path / "plain"), model)


def test_a_changed_artifact_is_refused(pruned_model: Callable[..., tuple[Any, Path]]) -> None:
    _, folder = pruned_model("BertForSequenceClassification")
    path = folder / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="must have the SHA-256"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


@pytest.fixture
def delta(
    pruned_model: Callable[..., tuple[Any, Path]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], tuple[Any, Path]]:
    """Makes a tiny pruned model and its delta artifact; its base, "tiny", is under MVPRUNE_MODELS."""
    monkeypatch.setenv("MVPRUNE_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()

    def make(kind: str) -> tuple[Any, Path]:
        model, _ = pruned_model(kind, folder="other")
        model.base_model.save_pretrained(tmp_path / "models" / "tiny")  # without its head, as a pretrained one has none
        made, folder = pruned_model(kind, base=Base(tmp_path / "models" / "tiny"))
        assert "bert.embeddings.word_embeddings.weight" in open_header(folder / WEIGHTS_FILE).base
        return made, folder

    return make


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "BertForMaskedLM"])
def test_a_delta_artifact_finds_its_base(delta: Callable[[str], tuple[Any, Path]], tmp_path: Path, kind: str) -> None:
    model, folder = delta(kind)
    auto = getattr(transformers, kind.replace("Bert", "AutoModel"))
    loaded, report = auto.from_pretrained(folder, output_loading_info=True)
    assert not any(report[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert same_state(loaded, model)
    assert same_state(
        transformers.BertModel.from_pretrained(folder, add_pooling_layer=kind != "BertForMaskedLM"), model.bert
    )
    assert same_state(auto.from_pretrained(folder, dtype=torch.bfloat16), model.bfloat16())
    assert not list((tmp_path / "scratch").iterdir()), "nothing is left of what was read from the base"


def test_a_delta_artifact_whose_base_is_not_there(
    delta: Callable[[str], tuple[Any, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = delta("BertForSequenceClassification")
    monkeypatch.delenv("MVPRUNE_MODELS")
    with pytest.raises(
        ValueError, match=r"it needs its base model, 'tiny'.*set MVPRUNE_MODELS.*mvprune.load\(artifact"
    ):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def test_another_model_under_the_bases_name(delta: Callable[[str], tuple[Any, Path]], tmp_path: Path) -> None:
    _, folder = delta("BertForSequenceClassification")
    path = tmp_path / "models" / "tiny" / "model.safetensors"
    tensors = load_file(path)
    save_file({name: value + 1 for name, value in tensors.items()}, path)
    with pytest.raises(ValueError, match=r"must have the SHA-256 [0-9a-f]{64}; give the same model"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def test_a_delta_artifact_without_its_manifest(delta: Callable[[str], tuple[Any, Path]]) -> None:
    _, folder = delta("BertForSequenceClassification")
    (folder / "manifest.json").unlink()
    with pytest.raises(ValueError, match=r"must have manifest\.json beside it, got none"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)
