"""A pruned model of BERT-base's or MiniLM's shape with random weights, and its artifact, for the benchmarks.

Masks are random, of single weights or of blocks (four inputs of an output, from a multiple of four on), or uneven as
real ones are: the scale of the weights differs by layer, by row and by column (log-normal, sigma 0.35), and the largest
weights of the whole encoder are kept. At 3 % layers keep from 0.2 to 21 % of their weights, a fifth of the rows is
empty, and the fullest keeps two thirds.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from mvprune.artifact import (
    Accounting,
    Coding,
    DatasetSource,
    LayerCount,
    ModelSource,
    ResultInfo,
    round_values,
    save_model,
)
from mvprune.artifact.history import History

MASKS = ("uneven", "random")
SHAPES: dict[str, dict[str, int]] = {
    "BERT-base": {},
    "MiniLM": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
    "MiniLM-L12": {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536},
}

_SIGMA = 0.35
_SAMPLE = 100_000  # weights of each matrix from which the threshold is estimated


def pruned_bert(density: float, masks: str, seed: int = 0, shape: str = "BERT-base") -> BertForSequenceClassification:
    """A model in evaluation mode of whose encoder's matrices that fraction is kept."""
    torch.manual_seed(seed)
    model = BertForSequenceClassification(BertConfig(vocab_size=30_522, **SHAPES[shape])).eval()
    with torch.no_grad():
        weights = [weight for _, weight in encoder_matrices(model)]
        if masks in ("random", "blocks"):
            size = 4 if masks == "blocks" else 1
            for weight in weights:
                kept = torch.rand(weight.shape[0], weight.shape[1] // size) < density
                weight.mul_(kept.repeat_interleave(size, 1))
            return model
        for weight in weights:
            for shape in ((1, 1), (weight.shape[0], 1), (1, weight.shape[1])):
                weight.mul_((_SIGMA * torch.randn(shape)).exp())
        threshold = _threshold(weights, density)
        for weight in weights:
            weight.mul_(weight.abs() >= threshold)
    return model


def encoder_matrices(model: BertForSequenceClassification) -> list[tuple[str, Tensor]]:
    """The weights that are pruned, by name."""
    return [(name, weight) for name, weight in model.named_parameters() if ".layer." in name and weight.ndim == 2]


def _threshold(weights: list[Tensor], density: float) -> float:
    shares = [
        weight.flatten()[torch.randint(weight.numel(), (_SAMPLE * weight.numel() // 590_000,))] for weight in weights
    ]
    sizes = torch.cat(shares).abs().sort().values
    return float(sizes[int(len(sizes) * (1 - density))])


class _NoTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("[PAD]\n")


def write_artifact(
    folder: Path,
    model: BertForSequenceClassification,
    tokenizer: Any = None,
    coding: Coding = Coding(),  # noqa: B008 (immutable)
    history: History = History(),  # noqa: B008 (immutable)
    activations: str = "fp32",
) -> Path:
    """Stores the model as the service does; returns the folder."""
    names = [name for name, _ in encoder_matrices(model)]
    round_values(model, names, coding)
    layers = tuple(_count(name, weight) for name, weight in encoder_matrices(model))
    kept, all_weights = (
        sum(layer.nonzero for layer in layers),
        sum(weight.numel() for _, weight in encoder_matrices(model)),
    )
    parameters = sum(weight.numel() for weight in model.parameters())
    digest = hashlib.sha256(b"benchmark").hexdigest()
    density = kept / all_weights
    result = ResultInfo(
        spec={"task": "sst2", "activations": activations},
        model=ModelSource("random", "", digest),
        dataset=DatasetSource("sst2", digest, 0, 0),
        metrics={"eval/accuracy": 0.5},
        primary_metric="accuracy",
        accounting=Accounting(
            density,
            density,
            all_weights,
            kept,
            all_weights,
            kept,
            parameters,
            parameters - all_weights + kept,
            4 * parameters,
        ),
        layers=layers,
        versions={},
        seed=0,
    )
    save_model(folder, model, tokenizer or _NoTokenizer(), pruned=names, result=result, coding=coding, history=history)
    return folder


def _count(name: str, weight: Tensor) -> LayerCount:
    nonzero = int(torch.count_nonzero(weight))
    return LayerCount(name, tuple(weight.shape), nonzero / weight.numel(), nonzero)
