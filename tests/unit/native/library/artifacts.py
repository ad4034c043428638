"""Artifacts of small random models, of every architecture and task that the C interface computes."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.unit.runtime.pruned_models import SIZES, for_int8, prune

from mvprune.artifact import (
    Accounting,
    Coding,
    DatasetSource,
    LayerCount,
    ModelSource,
    ResultInfo,
    Values,
    round_values,
    save_model,
)

LONG = SIZES | {"max_position_embeddings": 300}
TOKENS = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
DISTANCES = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
V3 = DISTANCES | {
    "position_buckets": 32,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
}
MODERN = LONG | TOKENS | {"num_hidden_layers": 3, "global_attn_every_n_layers": 2, "local_attention": 16}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT": ("Bert", LONG),
    "BERT, tanh GELU": ("Bert", LONG | {"hidden_act": "gelu_new"}),
    "RoBERTa": ("Roberta", LONG | {"max_position_embeddings": 302}),
    "XLM-RoBERTa": ("XLMRoberta", LONG | {"max_position_embeddings": 302}),
    "CamemBERT": ("Camembert", LONG | {"max_position_embeddings": 302}),
    "MPNet": ("MPNet", LONG | {"max_position_embeddings": 302}),
    "ModernBERT": ("ModernBert", MODERN),
    "ModernBERT with biases": (
        "ModernBert",
        MODERN
        | dict.fromkeys(("norm_bias", "mlp_bias", "attention_bias", "classifier_bias"), True)
        | {"classifier_pooling": "mean"},
    ),
    "DeBERTa-v2": ("DebertaV2", LONG | DISTANCES),
    "DeBERTa-v3": ("DebertaV2", LONG | V3),
    "far positions": ("DebertaV2", LONG | V3 | {"share_att_key": False, "max_relative_positions": 40}),
}
TASKS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "Model")
EMBEDDING = {"pooling_mode": "mean", "normalize": True, "prompts": {}, "default_prompt_name": None}


class NoTokenizer:
    def save_pretrained(self, folder: Path) -> None:
        (folder / "vocab.txt").write_text("[PAD]\n")


def made(body: str, task: str, **config: Any) -> Any:
    """A pruned model whose norms and places matter."""
    torch.manual_seed(0)
    kind, sizes = BODIES[body]
    extra: dict[str, Any] = {} if task in ("Model", "ForQuestionAnswering") else {"num_labels": 3}
    if task == "Model":
        extra["sentence_embedding"] = EMBEDDING
    model = getattr(transformers, kind + task)(getattr(transformers, f"{kind}Config")(**sizes | extra | config)).eval()
    with torch.no_grad():
        for path, weight in model.named_parameters():
            if "relative_attention_bias" in path or "rel_embeddings" in path:
                weight.normal_(0, 1)
            elif "norm" in path.lower():
                weight.add_(0.2 * torch.randn_like(weight))
            elif "layer" not in path and weight.ndim == 2:
                weight.mul_(8)
    return model


def saved(
    folder: Path,
    model: Any,
    *,
    density: float = 0.1,
    coding: Coding = Coding(),  # noqa: B008 (immutable)
    int8: bool = False,
    tokenizer: Any = None,
    task: str = "sst2",
    **spec: Any,
) -> Path:
    """The artifact of a model, whose blocks are pruned before. `int8`: of a job for int8 activations."""
    names = prune(model, density, uneven=density < 0.5)
    round_values(model, names, coding)
    layers = []
    for name in names:
        weight = model.get_parameter(name)
        count = int(torch.count_nonzero(weight))
        layers.append(LayerCount(name, tuple(weight.shape), count / weight.numel(), count))
    kept = sum(layer.nonzero for layer in layers)
    digest = hashlib.sha256(b"").hexdigest()
    result = ResultInfo(
        spec={"task": task} | spec,
        model=ModelSource("tiny", "", digest),
        dataset=DatasetSource(task, digest, 1, 1),
        metrics={"eval/accuracy": 0.5},
        primary_metric="accuracy",
        accounting=Accounting(0.1, 0.1, 10**6, kept, 10**6, kept, 10**6, kept, 4 * 10**6),
        layers=tuple(layers),
        versions={},
        seed=0,
    )
    save_model(folder, model, tokenizer or NoTokenizer(), pruned=names, result=result, coding=coding)
    return for_int8(folder, folder.with_name(f"{folder.name}-int8")) if int8 else folder


def coded(values: str) -> Coding:
    """Everything stored as these values."""
    return dataclasses.replace(Coding(), values=Values(values), embeddings=Values(values))
