"""Models that cannot be compressed, or do not fit into memory, are refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertForSequenceClassification

from mvprune.data.loading import ClassificationData
from mvprune_core import (
    Callback,
    CompressionError,
    Reason,
    compress,
)


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


def _half_an_encoder(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in tensors.items() if "layer.1." not in name}, folder / "model.safetensors")


def _unknown_type(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "no-such-model"}))


def _no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def _other_tokenizer(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"] |= {f"more{number}": 100 + number for number in range(50)}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_no_weights, "must have its weights in model.safetensors, got no such file"),
        (_pickle, "must have its weights in safetensors, got the pickle"),
        (_cut, "cut or corrupt"),
        (_half_an_encoder, "num_hidden_layers must be 1, the number of layers in the weights, got 2"),
        (_unknown_type, "no-such-model"),
        (_no_tokenizer, "tokenizer"),
        (_other_tokenizer, r"must give ids below 40, the rows of the model's embeddings, got 149 for 'more49'"),
    ],
)
def test_unusable_models_are_refused_in_one_sentence(
    model_folder: Path, data: ClassificationData, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(model_folder)
    with pytest.raises(CompressionError, match=words) as raised:
        compress(model_folder, data, density=0.5)
    assert raised.value.reason is Reason.INVALID_MODEL
    assert "\n" not in raised.value.message
    assert len(raised.value.message) < 500


def test_running_out_of_memory_has_a_reason(model_folder: Path, data: ClassificationData) -> None:
    class Greedy(Callback):
        def on_phase(self, name: str) -> None:
            torch.empty(2**60, dtype=torch.uint8)

    with pytest.raises(CompressionError, match="batch_size") as raised:
        compress(model_folder, data, density=0.5, callback=Greedy())
    assert raised.value.reason is Reason.OUT_OF_MEMORY


def test_a_model_that_memory_is_too_small_for_is_not_taken_for_an_unsupported_one(
    model_folder: Path, data: ClassificationData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(*_: Any, **__: Any) -> None:
        torch.empty(2**60, dtype=torch.uint8)

    monkeypatch.setattr(BertForSequenceClassification, "forward", greedy)
    with pytest.raises(CompressionError, match="batch_size") as raised:
        compress(model_folder, data, density=0.5)
    assert raised.value.reason is Reason.OUT_OF_MEMORY
