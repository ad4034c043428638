"""Tiny models, pruned, and what their tests do with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from mvprune.artifact import (
    MANIFEST_FILE,
    ArtifactFile,
    read_manifest,
    round_values,
)
from mvprune.artifact.manifest import measure

TINY_BERT = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 24,
}


class Tokenizer:
    """Writes what a tokenizer writes, a folder included."""

    def save_pretrained(self, folder: Path) -> None:
        (folder / "templates").mkdir()
        (folder / "templates" / "chat.jinja").write_text("{{ text }}")
        (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n")


def bert(kind: str = "BertForSequenceClassification") -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    return getattr(transformers, kind)(transformers.BertConfig(**TINY_BERT)).eval()


def prune(model: nn.Module, density: float = 0.1, **rounding: Any) -> list[str]:
    """Zeros, some of them negative, in the weights of the blocks; the values rounded."""
    names = [name for name, value in model.named_parameters() if ".layer." in name and value.ndim == 2]
    with torch.no_grad():
        for name in names:
            weight = model.get_parameter(name)
            weight.mul_((torch.rand_like(weight) < density).float())
    round_values(model, names, **rounding)
    return names


def kept(model: nn.Module, names: Iterable[str]) -> int:
    return sum(int(torch.count_nonzero(model.get_parameter(name))) for name in names)


def reseal(folder: Path, drop: str = "") -> None:
    """Gives a changed folder a manifest that vouches for it."""
    manifest = read_manifest(folder)
    files = tuple(
        ArtifactFile(file.path, *measure(folder / file.path), file.media_type)
        for file in manifest.files
        if file.path != drop
    )
    (folder / MANIFEST_FILE).write_bytes(dataclasses.replace(manifest, files=files).to_json())


def identical(found: nn.Module, expected: nn.Module) -> bool:
    left, right = found.state_dict(), expected.state_dict()
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].numpy().tobytes() == right[name].numpy().tobytes()
        for name in right
    )
