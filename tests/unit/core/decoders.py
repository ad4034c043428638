"""Tiny decoders, and a tokenizer as theirs: no padding token, no special tokens around a text."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from tests.unit.core.architectures import RIGHT
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerFast

DECODERS = ("gpt2", "opt", "gpt_neox", "llama", "qwen2", "qwen3")
_NONE = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}


def of_decoders(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """The words of a tokenizer; `[SEP]` ends a text."""
    words = Tokenizer(models.WordLevel(tokenizer.get_vocab(), unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token="[SEP]", unk_token="[UNK]")


def decoder(name: str, **changes: Any) -> PreTrainedModel:
    """Of one of `DECODERS`, large enough initial values that its logits depend on what it reads."""
    config = transformers.AutoConfig.for_model(name, **(RIGHT[name] | _NONE | {"initializer_range": 0.2} | changes))
    torch.manual_seed(1)
    model: PreTrainedModel = transformers.AutoModelForCausalLM.from_config(config)
    return model


def gpt2(**changes: Any) -> GPT2LMHeadModel:
    """Without dropout, for quick learning."""
    without = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = decoder("gpt2", **without | changes)
    assert isinstance(model, GPT2LMHeadModel)
    return model
