"""Random tokens for a model that is exported."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from mvprune.artifact.positions import longest_input

SHAPES = ((2, 8), (1, 5), (3, 16), (5, 11))  # examples × tokens: of the export, then of further checks
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_UNBOUNDED = 512  # tokens, for models with relative positions


def longest(model: Any) -> int:
    """Tokens of the longest input that is tried."""
    return longest_input(model) or _UNBOUNDED


def example(model: Any, examples: int, tokens: int) -> dict[str, Tensor]:
    """Random tokens as a tokenizer gives them: the end-of-sequence token comes last, padding after it.

    Some models look for these two tokens, and demand that each example has one end.
    """
    config = getattr(model.config, "encoder", model.config)  # of two models, the one that reads the input
    known = inspect.signature(model.forward).parameters
    tokens = min(tokens, longest(model))
    pad, end = _token(config, "pad_token_id"), _token(config, "eos_token_id")
    generator = torch.Generator().manual_seed(examples)
    words = torch.tensor([token for token in range(config.vocab_size) if token not in (pad, end)] or [0])
    ids = words[torch.randint(0, len(words), (examples, tokens), generator=generator)]
    mask = torch.ones_like(ids)
    for row in range(examples):
        length = max(1, tokens - 1 - 2 * row) if "attention_mask" in known else tokens
        mask[row, length:] = 0
        if pad is not None:
            ids[row, length:] = pad
        if end is not None:
            ids[row, length - 1] = end
    made = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    has_types = (getattr(config, "type_vocab_size", None) or 0) > 1
    return {name: made[name] for name in _INPUTS if name in known and (has_types or name != "token_type_ids")}


def _token(config: Any, name: str) -> int | None:
    """A special token's id, if it is in the vocabulary; of several the first."""
    found = getattr(config, name, None)
    token = found[0] if isinstance(found, list) and found else found
    return token if isinstance(token, int) and 0 <= token < config.vocab_size else None
