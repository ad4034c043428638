"""What is refused as a model, on its way into an artifact and out of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.artifact.saved_models import TINY_BERT, Tokenizer, bert, prune, reseal
from torch import nn

from mvprune.artifact import (
    MANIFEST_FILE,
    WEIGHTS_FILE,
    ArtifactError,
    ResultInfo,
    load,
    round_values,
    save_model,
)


@pytest.mark.parametrize("value", [65520.0, -1e30, float("inf"), float("nan")])
def test_what_fp16_cannot_hold_is_refused(value: float) -> None:
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight[0, 2] = value
    with pytest.raises(ArtifactError, match=r"^tensor 'weight': values must be (finite|within the range of fp16), got"):
        round_values(model)


def test_save_refuses_what_load_could_not_give_back(tmp_path: Path, save: Callable[..., Path]) -> None:
    with pytest.raises(ArtifactError, match="model must be a transformers model, got Linear"):
        save(nn.Linear(2, 2), [])
    with pytest.raises(ArtifactError, match=r"tensor '.*': values must be representable in fp16"):
        save(bert(), [])
    model = bert()
    round_values(model)
    model.classifier = nn.Linear(32, 5)
    with pytest.raises(
        ArtifactError, match=r"config.json: the tensors must be .* differences in classifier.bias, classifier.weight"
    ):
        save(model, [])
    model = bert()
    torch.nn.utils.parametrizations.weight_norm(model.classifier)
    with pytest.raises(ArtifactError, match=r"differences in classifier.parametrizations"):
        save(model, [])
    model = bert()
    model.config.auto_map = {"AutoModel": "code.Model"}
    with pytest.raises(ArtifactError, match="auto_map must be left out"):
        save(model, [])

    class Mine(transformers.BertForSequenceClassification):
        pass

    with pytest.raises(ArtifactError, match=r"architectures must name a model class of transformers .*got 'Mine'"):
        save(Mine(transformers.BertConfig(**TINY_BERT)), [])
    assert list((tmp_path / "out").iterdir()) == []


def test_save_refuses_a_wrong_count(tmp_path: Path, result: ResultInfo) -> None:
    model = bert()
    names = prune(model)
    with pytest.raises(
        ArtifactError, match=r"kept_weights must be \d+, the number of non-zeros of the pruned weights, got 8"
    ):
        save_model(tmp_path / "out", model, Tokenizer(), pruned=names, result=result)
    with pytest.raises(ArtifactError, match="pruned weights must be in the model's state dict, got 'x'"):
        save_model(tmp_path / "out", model, Tokenizer(), pruned=["x"], result=result)


def test_save_refuses_a_folder_with_files(saved: Path, save: Callable[..., Path]) -> None:
    before = (saved / MANIFEST_FILE).read_bytes()
    with pytest.raises(ArtifactError, match="must be new or empty"):
        save(bert(), [])
    assert (saved / MANIFEST_FILE).read_bytes() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"auto_map": {"AutoModel": "code.Model"}}, "auto_map must be left out, got {'AutoModel': 'code.Model'}"),
        ({"attn_implementation": "someone/kernel"}, "attn_implementation must be eager or sdpa, got 'someone/kernel'"),
        ({"_attn_implementation_internal": "someone/kernel"}, "_attn_implementation_internal must be eager or sdpa"),
        ({"sub": [{"experts_implementation": "x"}]}, "experts_implementation must be eager"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config must be left out"),
        ({"transformers_weights": "other.safetensors"}, "transformers_weights must be left out"),
        ({"attribute_map": {"number": "_attn_implementation"}, "number": "x/y"}, "attribute_map must be left out"),
        ({"to_dict": 1}, "to_dict must be left out"),
        ({"__dict__": {}}, "__dict__ must be left out"),
        ({"num_hidden_layers": 1001}, "num_hidden_layers must be at most 1000, got 1001"),
        ({"architectures": None}, "must be a list of one class name"),
        ({"architectures": ["BertModel", "BertModel"]}, "must be a list of one class name"),
        ({"architectures": ["BertNothing"]}, "must name a model class of transformers"),
        ({"architectures": ["pipeline"]}, "must name a model class of transformers"),
        ({"architectures": ["PreTrainedModel"]}, "must name a model class of transformers"),
        ({"architectures": ["GPT2LMHeadModel"]}, "for the model_type 'bert'"),
        ({"architectures": ["__class__"]}, "must name a model class of transformers"),
        ({"model_type": "nothing"}, "got 'nothing'"),
        ({"model_type": ["bert"]}, "model_type must be one of transformers"),
        ({"hidden_size": "large"}, "must be a configuration of a"),
        ({"num_attention_heads": 5}, "must be a configuration of a"),
        ({"num_hidden_layers": 3}, "differences in bert.encoder.layer.2"),
        ({"hidden_size": 64}, "differences in bert.embeddings"),
        ({"architectures": ["BertForTokenClassification"]}, "differences in bert.pooler"),
    ],
)
def test_load_refuses_a_configuration_with_code_or_of_another_model(
    saved: Path, change: dict[str, Any], reason: str
) -> None:
    path = saved / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    reseal(saved)
    with pytest.raises(ArtifactError) as caught:
        load(saved)
    assert str(caught.value).startswith("config.json: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1, "a": 2}', b"\xff"])
def test_load_refuses_what_is_no_configuration(saved: Path, content: bytes) -> None:
    (saved / "config.json").write_bytes(content)
    reseal(saved)
    with pytest.raises(ArtifactError, match=r"^config.json: "):
        load(saved)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS_FILE])
def test_load_takes_no_file_that_the_manifest_does_not_name(saved: Path, name: str) -> None:
    reseal(saved, drop=name)
    with pytest.raises(ArtifactError, match=f"^manifest.json: files must contain {name}"):
        load(saved)
