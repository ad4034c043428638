"""Plain from_pretrained on an artifact, after `import mvprune.hf`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import mvprune.hf  # noqa: F401 (registers the format)
from mvprune.artifact import Base, Values, load

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
    with pytest.raises(ValueError, match="has the SHA-256"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def test_a_delta_artifact_says_how_it_is_loaded(pruned_model: Callable[..., tuple[Any, Path]], tmp_path: Path) -> None:
    model, _ = pruned_model("BertForSequenceClassification", folder="other")
    model.save_pretrained(tmp_path / "base")
    _, folder = pruned_model("BertForSequenceClassification", base=Base(tmp_path / "base"))
    with pytest.raises(ValueError, match=r"a delta artifact: load it with mvprune.load\(folder, base\)"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def test_without_the_import_there_is_an_error_and_no_broken_model(
    pruned_model: Callable[..., tuple[Any, Path]],
) -> None:
    _, folder = pruned_model("BertForSequenceClassification")
    code = "import sys, transformers; transformers.AutoModelForSequenceClassification.from_pretrained(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert done.returncode == 1
    assert "no file named model.safetensors" in done.stderr.splitlines()[-1]
