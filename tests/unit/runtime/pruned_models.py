"""Small pruned models of many architectures, for the runtime's tests."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from mvprune.artifact import MANIFEST_FILE, read_manifest
from mvprune.runtime import kernel

WORDS = 60
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 100,
    "max_position_embeddings": 60,
}
_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "Bert": SIZES,
    "Roberta": SIZES,
    "XLMRoberta": SIZES,
    "Camembert": SIZES,
    "Electra": SIZES | {"embedding_size": 48},
    "MPNet": SIZES,
    "Albert": SIZES | {"embedding_size": 24},
    "Deberta": SIZES | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "DebertaV2": SIZES | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "hidden_act": "gelu_new"},
    "DistilBert": {"vocab_size": WORDS, "n_layers": 2, "n_heads": 4, "dim": 48, "hidden_dim": 100},
    "ModernBert": SIZES
    | dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
    "GPT2": {"vocab_size": WORDS, "n_layer": 2, "n_head": 4, "n_embd": 48, "pad_token_id": 0},
}
ARCHITECTURES = tuple(_ARCHITECTURES)

needs_kernel = pytest.mark.skipif(bool(kernel.load()), reason=kernel.load() or "built")
needs_layers = pytest.mark.skipif(
    kernel.isa() not in ("avx512", "avx2"), reason="layers are computed part by part here"
)
needs_int8 = pytest.mark.skipif(not kernel.multiplies_bytes(), reason="there are no products of bytes here")
BACKENDS = (pytest.param("kernel", marks=needs_kernel), "csr")


def uneven_mask(shape: tuple[int, int], density: float, source: np.random.Generator) -> np.ndarray[Any, Any]:
    """As movement pruning leaves it: some rows full, many empty."""
    share = source.permutation(np.linspace(0, 1, shape[0]) ** 4)
    return source.random(shape) < share[:, None] * (density / share.mean())


def prune(model: nn.Module, density: float = 0.1, uneven: bool = True) -> list[str]:
    """Zeros most of the weights in the blocks, in place; the rest is made large, so that differences show."""
    source, names = np.random.default_rng(0), []
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear | Conv1D) and any(part.isdecimal() for part in name.split(".")):
                shape = (module.weight.shape[0], module.weight.shape[1])
                mask = uneven_mask(shape, density, source) if uneven else source.random(shape) < density
                module.weight.mul_(20 * torch.from_numpy(mask))
                if module.bias is not None:
                    module.bias.normal_(0, 0.1)
                names.append(f"{name}.weight")
    return names


def pruned(architecture: str, uneven: bool = True, density: float = 0.1) -> Any:
    """A model for sequence classification in evaluation mode."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{architecture}Config")(**_ARCHITECTURES[architecture], num_labels=3)
    model = getattr(transformers, f"{architecture}ForSequenceClassification")(config).eval()
    prune(model, density, uneven)
    return model


def inputs(batch: int = 3, tokens: int = 17) -> dict[str, Tensor]:
    """Random tokens; all examples but the first are padded, each more than the one before."""
    ids = torch.randint(3, WORDS, (batch, tokens), generator=torch.Generator().manual_seed(tokens))
    mask = torch.ones_like(ids)
    for row in range(batch):
        mask[row, max(1, tokens - 3 * row) :] = 0
    return {"input_ids": ids, "attention_mask": mask}


def for_int8(artifact: Path, folder: Path) -> Path:
    """A copy of an artifact, of a job with int8 activations."""
    shutil.copytree(artifact, folder)
    manifest = read_manifest(folder)
    changed = replace(manifest, spec={**manifest.spec, "activations": "INT8"})
    (folder / MANIFEST_FILE).write_bytes(changed.to_json())
    return folder
