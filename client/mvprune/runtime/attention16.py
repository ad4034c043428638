"""Attention in int16 in torch: what attention16.h computes for layers whose queries, keys and values come from int8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from mvprune.runtime._layer import known_parts

_NAME = "mvprune_int16"
_KEYS, _SHARES, _VALUES = 2047, 32767, 16383  # the largest integers
_LARGEST_HEAD = 512  # features; those of larger heads are in fp32


@contextmanager
def attention16_simulated(model: nn.Module) -> Iterator[None]:
    """A context in which the blocks that the kernel computes as a whole have its attention in int16."""
    parts = (known_parts(module).get("attention") for module in model.modules())
    found: dict[int, Any] = {
        id(part.config): part.config
        for part in parts
        if part is not None and part.config._attn_implementation == "sdpa" and part.attention_head_size <= _LARGEST_HEAD
    }
    for config in found.values():
        config._attn_implementation = _NAME
    try:
        yield
    finally:
        for config in found.values():
            config._attn_implementation = "sdpa"


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    **others: Any,
) -> tuple[Tensor, None]:
    """An attention function of transformers.

    Args:
        module: not used.
        query, key, value: (examples, heads, tokens, features).
        attention_mask: bool, (examples, 1, tokens or 1, tokens), the same for all queries; None: all tokens are kept.
        scaling: of the scores.
        others: not used; the model is in evaluation mode.

    Returns:
        (examples, tokens, heads, features), and no weights.
    """
    kept = torch.ones(len(key), 1, 1, key.shape[2], dtype=torch.bool, device=key.device)
    if attention_mask is not None:
        kept = attention_mask[:, :, :1].expand(kept.shape)
    columns = kept.transpose(2, 3)
    queries, of_query = _integers(query, query.abs().amax(3, keepdim=True), _KEYS)
    keys, of_keys = _integers(key, (key.abs() * columns).amax((2, 3), keepdim=True), _KEYS)
    values, of_values = _integers(value, (value.abs() * columns).amax((2, 3), keepdim=True), _VALUES)
    # Sums of products are exact integers, in float64.
    scores = (queries @ keys.transpose(2, 3)).float() * (of_query * of_keys * scaling)
    scores = scores.masked_fill(~kept, -torch.inf)
    exponentials = _rough_exp(scores - scores.amax(3, keepdim=True))
    shares = (exponentials * (_SHARES / exponentials.sum(3, keepdim=True))).round().double()
    found = (shares @ values).float() * (of_values / _SHARES)
    return found.transpose(1, 2).contiguous(), None


def _integers(x: Tensor, most: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """x as integers up to `limit` for the largest magnitude, in float64, and what they are multiplied by."""
    is_zero = most < 1e-30
    numbers = (x * (limit / most).masked_fill(is_zero, 0)).round()
    return numbers.double(), (most / limit).masked_fill(is_zero, 0)


def _rough_exp(x: Tensor) -> Tensor:
    """e^x for x <= 0, within 5e-5 of it; 0 below -87."""
    inside = x.clamp_min(-87)
    power = (inside * 1.44269504).round()
    rest = inside - power * 0.693147181
    series = 1 + rest * (1 + rest * (0.5 + rest * (0.16666667 + rest * 0.041666668)))
    return torch.ldexp(series, power.int()).masked_fill(x < -87, 0)


AttentionInterface.register(_NAME, attend)
AttentionMaskInterface.register(_NAME, sdpa_mask)
