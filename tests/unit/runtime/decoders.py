"""Small pruned decoders, for the tests of decoding."""

from __future__ import annotations

import copy
from typing import Any

import torch
import transformers
from tests.unit.runtime.pruned_models import SIZES, WORDS, prune
from torch import Tensor

_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GROUPED = SIZES | _ENDS | {"num_key_value_heads": 2}
_DECODERS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"vocab_size": WORDS, "n_layer": 2, "n_head": 4, "n_embd": 48, "n_positions": 60} | _ENDS,
    "OPTForCausalLM": SIZES | _ENDS | {"ffn_dim": 100, "word_embed_proj_dim": 48},
    "GPTNeoXForCausalLM": SIZES | _ENDS,
    "LlamaForCausalLM": _GROUPED,
    "MistralForCausalLM": _GROUPED,
    "Qwen2ForCausalLM": _GROUPED,
    "Qwen3ForCausalLM": _GROUPED | {"head_dim": 16},
}
DECODERS = tuple(_DECODERS)


def decoder(name: str, density: float = 0.2, **settings: Any) -> Any:
    """A pruned model in evaluation mode, whose texts are not one word again and again."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**_DECODERS[name] | settings)
    model = kind(config).eval()
    prune(model, density)
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0, 1)
        model.get_output_embeddings().weight.normal_(0, 1)
    return model


def prompts(batch: int = 1, tokens: int = 9) -> dict[str, Tensor]:
    """Random tokens; all examples but the first are padded on the left, each more than the one before."""
    ids = torch.randint(3, WORDS, (batch, tokens), generator=torch.Generator().manual_seed(tokens))
    mask = torch.ones_like(ids)
    for row in range(batch):
        mask[row, : 2 * row] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def written(model: Any, *, batch: int = 1, tokens: int = 9, new: int = 20, seed: int = 0, **settings: Any) -> Tensor:
    """What `generate` writes, (texts, tokens)."""
    torch.manual_seed(seed)
    made = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False} | settings
    found: Tensor = model.generate(**prompts(batch, tokens), **made)
    return found


def twin(model: Any) -> Any:
    return copy.deepcopy(model)
