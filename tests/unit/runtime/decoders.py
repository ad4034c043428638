"""Small pruned decoders, for the tests of decoding."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.pruned_models import SIZES, WORDS, prune
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast

from mvprune.runtime import _decoder

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
_ENCODER_DECODER = _ENDS | {
    "vocab_size": WORDS,
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 100,
    "decoder_ffn_dim": 80,
    "max_position_embeddings": 60,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "forced_bos_token_id": None,
    "scale_embedding": True,
}
_ENCODER_DECODERS: dict[str, dict[str, Any]] = {
    "BartForConditionalGeneration": _ENCODER_DECODER,
    "MBartForConditionalGeneration": _ENCODER_DECODER,
    "PegasusForConditionalGeneration": _ENCODER_DECODER,
    "MarianMTModel": _ENCODER_DECODER | {"decoder_vocab_size": WORDS},
}
ENCODER_DECODERS = tuple(_ENCODER_DECODERS)
_T5 = _ENDS | {
    "vocab_size": WORDS,
    "d_model": 48,
    "d_kv": 16,
    "d_ff": 100,
    "num_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 20,
}
_T5S = {"T5ForConditionalGeneration": _T5, "MT5ForConditionalGeneration": _T5}
T5S = tuple(_T5S)
"""Whose steps the sparse runtime in torch computes part by part."""


def decoder(name: str, density: float = 0.2, **settings: Any) -> Any:
    """A pruned model in evaluation mode, whose texts are not one word again and again."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(**(_DECODERS | _ENCODER_DECODERS | _T5S)[name] | settings)
    model = kind(config).eval()
    prune(model, density)
    with torch.no_grad():
        model.get_input_embeddings().weight.normal_(0, 1)
        model.get_output_embeddings().weight.normal_(0, 1)
        for path, weight in model.named_parameters():
            if "relative_attention_bias" in path:
                weight.normal_(0, 1)
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


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Texts of each step that was one call."""
    seen: list[int] = []
    run = _decoder.DecoderForward._run

    def counted(self: Any, ids: Tensor, *others: Any) -> Tensor | None:
        y = run(self, ids, *others)
        if y is not None:
            seen.append(len(ids))
        return y

    monkeypatch.setattr(_decoder.DecoderForward, "_run", counted)
    return seen


def name_of_cache() -> str:
    """The argument of a model: since transformers 5.24, and before."""
    return "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"
