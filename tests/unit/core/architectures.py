"""Tiny models of the architectures that docs/models.md lists."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
import transformers

from mvprune_core.tasks.batching import Examples

_MODEL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_MODEL |= {"vocab_size": 40, "max_position_embeddings": 96, "pad_token_id": 0}
_ENDS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
_BOTH = {"d_model": 32, "vocab_size": 40, "decoder_start_token_id": 0, **_ENDS}
_BART = _BOTH | {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
_BART |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 96}
_T5 = _BOTH | {"d_kv": 16, "num_heads": 2, "d_ff": 64, "num_layers": 1}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 96, "pad_token_id": 0}
_LLAMA = _MODEL | {"num_key_value_heads": 1}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_XLM = {"vocab_size": 40, "emb_dim": 32, "n_layers": 2, "n_heads": 2, "pad_index": 0, "max_position_embeddings": 96}
_XLM |= {"pad_token_id": 0}

RIGHT: dict[str, dict[str, Any]] = {
    "albert": _MODEL | {"embedding_size": 16},
    "bart": _BART,
    "bert": _MODEL,
    "big_bird": _MODEL | {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 2, "vocab_size": 40, "pad_token_id": 0},
    "camembert": _MODEL,
    "ctrl": _GPT | {"dff": 64},
    "data2vec-text": _MODEL,
    "deberta": _MODEL | _RELATIVE,
    "deberta-v2": _MODEL | _RELATIVE | {"conv_kernel_size": 3, "position_buckets": 8},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 40},
    "electra": _MODEL | {"embedding_size": 16},
    "ernie": _MODEL,
    "esm": _MODEL | {"mask_token_id": 4},
    "falcon": _MODEL,
    "flaubert": _XLM,
    "funnel": {"vocab_size": 40, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64, "block_sizes": [1, 1]},
    "gemma": _LLAMA | {"head_dim": 16},
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gpt_neo": _MODEL | {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "gpt_neox": _MODEL,
    "gptj": _GPT | {"rotary_dim": 8},
    "layoutlm": _MODEL,
    "llama": _LLAMA,
    "longformer": _MODEL | {"attention_window": 8, "max_position_embeddings": 104},
    "luke": _MODEL | {"entity_vocab_size": 10, "entity_emb_size": 8},
    "mbart": _BART,
    "megatron-bert": _MODEL,
    "mistral": _LLAMA,
    "mixtral": _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mobilebert": _MODEL | {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "modernbert": _MODEL | {"cls_token_id": 2, "sep_token_id": 3, **_ENDS},
    "mpnet": _MODEL,
    "mt5": _T5,
    "opt": _MODEL | {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen2": _LLAMA,
    "qwen3": _LLAMA | {"head_dim": 16},
    "rembert": _MODEL | {"input_embedding_size": 16, "output_embedding_size": 16},
    "roberta": _MODEL,
    "roformer": _MODEL | {"embedding_size": 32},
    "squeezebert": _MODEL | {"embedding_size": 32}
    | {f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate", "output")},
    "t5": _T5,
    "umt5": _T5,
    "xlm": _XLM,
    "xlm-roberta": _MODEL,
    "xmod": _MODEL | {"languages": ["en_XX"], "default_language": "en_XX"},
}  # fmt: skip
LEFT: dict[str, dict[str, Any]] = {
    "xlnet": {"vocab_size": 40, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "pad_token_id": 0}
}
REFUSED: dict[str, dict[str, Any]] = {
    "convbert": _MODEL | {"embedding_size": 32},
    "fnet": {name: value for name, value in _MODEL.items() if name != "num_attention_heads"},
    "nystromformer": _MODEL | {"num_landmarks": 64, "segment_means_seq_len": 64},
    "reformer": {"vocab_size": 40, "hidden_size": 32, "attention_head_size": 16, "num_attention_heads": 2}
    | {"axial_pos_embds": False, "attn_layers": ["local", "lsh"], "num_buckets": 2, "is_decoder": False}
    | {"lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4, "feed_forward_size": 64, "pad_token_id": 0},
    "yoso": _MODEL,
}


def build(name: str, options: dict[str, Any], head: str = "SequenceClassification") -> Any:
    """A model none of whose weights is zero or small, those of padding neither."""
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING[name](**options)
    model = getattr(transformers, f"AutoModelFor{head}").from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model


def examples(*lengths: int) -> Examples:
    source = random.Random(0)
    rows = [[2, *(source.randrange(5, 40) for _ in range(length - 2)), 3] for length in lengths]
    return Examples({"input_ids": [np.array(row, dtype=np.int32) for row in rows]}, {}, pad_token=0)
