"""What was written is opened again before it counts as a result."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.core.training_runs import SHORT
from transformers import BertModel, PreTrainedTokenizerFast

from mvprune.artifact import MANIFEST_FILE
from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Reason, compress
from mvprune_core.runs.result import Result


@pytest.fixture
def result(model_folder: Path, data: ClassificationData) -> Result:
    return compress(
        model_folder, data, method="magnitude", density=0.5, training=replace(SHORT, max_steps=3), dense_baseline=False
    )


def _config(result: Result) -> None:
    result.model.config.layer_norm_eps = 0.1


def _hook(result: Result) -> None:
    result.model.get_input_embeddings().register_forward_hook(lambda _, __, output: output * 1.01)


def _tokenizer(result: Result) -> None:
    result.tokenizer.save_pretrained = lambda folder: _without_pairs(result.tokenizer, folder)


def _without_pairs(tokenizer: Any, folder: Path) -> None:
    transformers.PreTrainedTokenizerFast.save_pretrained(tokenizer, folder)
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(rules))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_config, r"its last_hidden_state for a text of \d+ tokens, in a batch of 3 with padding, differ by .*%"),
        (_hook, r"its last_hidden_state for a text of \d+ tokens"),
        (_tokenizer, r"its tokenizer gives other ids for a text of \d+ tokens"),
    ],
)
def test_an_artifact_that_computes_something_else_is_no_result(
    result: Result, tmp_path: Path, change: Callable[[Result], None], message: str
) -> None:
    change(result)
    with pytest.raises(CompressionError, match=message) as raised:
        result.save(tmp_path / "out")
    assert raised.value.reason is Reason.ARTIFACT_CORRUPT
    assert not (tmp_path / "out" / MANIFEST_FILE).exists()


def test_what_cannot_be_written_is_refused_before_training(
    save: Callable[..., Path],
    bert_config: Callable[..., Any],
    data: ClassificationData,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = save(BertModel(bert_config()))

    def fails(*_: Any, **__: Any) -> None:
        raise ValueError("validator 'validate_x':\nthe value is wrong")

    monkeypatch.setattr(transformers.BertConfig, "save_pretrained", fails)
    with pytest.raises(CompressionError, match=r"cannot be written .*validate_x': the value is wrong") as raised:
        compress(folder, data, method="magnitude", density=0.5, training=SHORT)
    assert raised.value.reason is Reason.INVALID_MODEL


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (["attention_mask"], "input_ids, attention_mask"),
        (["token_type_ids", "input_ids"], "input_ids, token_type_ids, attention_mask"),
        ([], "input_ids, attention_mask"),
    ],
)
def test_a_tokenizer_gives_ids_and_a_mask(
    model_folder: Path, data: ClassificationData, tmp_path: Path, names: list[str], note: str
) -> None:
    path = model_folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_input_names": names}))
    result = compress(
        model_folder, data, method="magnitude", density=1.0, training=replace(SHORT, max_steps=3), dense_baseline=False
    )
    result.save(tmp_path / "out")
    [said] = [text for text in result.notes if text.startswith("model_input_names of the tokenizer must begin with")]
    assert said.endswith(f"it was set to {note}")
    stored: PreTrainedTokenizerFast = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = stored(["good word1", "bad"], padding=True, return_tensors="pt")
    assert batch["attention_mask"].sum(1).tolist() == [4, 3]
    with torch.inference_mode():
        result.model(**batch)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("output_attentions", True),
        ("output_hidden_states", True),
        ("return_dict", False),
        ("torchscript", True),
        ("use_cache", True),
        ("chunk_size_feed_forward", 7),
    ],
)
def test_the_form_of_outputs_in_config_json_is_that_of_training(
    save: Callable[..., Path],
    bert_config: Callable[..., Any],
    data: ClassificationData,
    tmp_path: Path,
    key: str,
    value: Any,
) -> None:
    folder = save(BertModel(bert_config()))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    result = compress(
        folder, data, method="magnitude", density=0.5, training=replace(SHORT, max_steps=3), dense_baseline=False
    )
    result.save(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text()).get(key) != value
    assert any(f"{key} " in note for note in result.notes) == (key != "use_cache")


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("bert.encoder.layer.0.output.dense.bias", "embedding_dtype"),
        ("bert.encoder.layer.1.output.dense.weight", "weight_dtype"),
    ],
)
def test_a_value_beyond_fp16_is_named_before_training(
    save: Callable[..., Path], bert_config: Callable[..., Any], data: ClassificationData, name: str, option: str
) -> None:
    model = transformers.BertForSequenceClassification(bert_config())
    model.get_parameter(name).data.view(-1)[3] = -7e4
    folder, short = save(model), replace(SHORT, max_steps=3)
    message = rf"tensor {name} must be within the range of fp16 \(65504\), .* got 70000; take {option} bf16 or fp32"
    with pytest.raises(CompressionError, match=message) as raised:
        compress(folder, data, method="magnitude", density=0.5, training=short)
    assert raised.value.reason is Reason.INVALID_MODEL
    given: dict[str, Any] = {option: "bf16"}
    assert compress(folder, data, density=1.0, keep_fine_tuned=True, **given).metrics
