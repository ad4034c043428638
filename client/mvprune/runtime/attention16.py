"""Attention in int16 in torch: what attention16.h computes for layers whose queries, keys and values come from int8."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from mvprune.runtime._encoders import known_blocks
from mvprune.runtime._layer import known_parts
from mvprune.runtime._places import Disentangled, Relative, projections

_NAME = "mvprune_int16"
_KEYS, _SHARES, _VALUES = 2047, 32767, 16383  # the largest integers
_LARGEST_HEAD, _LARGEST_APART = 512, 256  # features; those of larger heads are in fp32


@contextmanager
def attention16_simulated(model: nn.Module) -> Iterator[None]:
    """A context in which the blocks that the kernel computes as a whole have its attention in int16."""
    by_function: list[Any] = []
    replaced: list[tuple[Any, Any]] = []
    for module in model.modules():
        if parts := known_parts(module):
            by_function.append(parts["attention"])
        family, blocks = known_blocks(module)
        for attention in (block["attention"] for block in blocks):
            if family.by_function:
                by_function.append(attention)
            elif family.places is Relative and _size(attention) <= _LARGEST_HEAD:
                replaced.append((attention, _relative))
            elif family.places is Disentangled and _size(attention) <= _LARGEST_APART:
                replaced.append((attention, _disentangled))
    configs = {id(one.config): one.config for one in by_function if _size(one) <= _LARGEST_HEAD}
    swapped = [config for config in configs.values() if config._attn_implementation == "sdpa"]
    for config in swapped:
        config._attn_implementation = _NAME
    for attention, forward in replaced:
        attention.forward = partial(forward, attention)
    try:
        yield
    finally:
        for config in swapped:
            config._attn_implementation = "sdpa"
        for attention, _ in replaced:
            del attention.forward


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
        attention_mask: bool, (examples, 1, tokens or 1, tokens); None: all tokens are kept. Queries differ by their
            windows only: what none of them sees is padding.
        scaling: of the scores.
        others: not used; the model is in evaluation mode.

    Returns:
        (examples, tokens, heads, features), and no weights.
    """
    return _attended(query, key, value, attention_mask, scaling, None), None


def _attended(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float, added: Tensor | None
) -> Tensor:
    """As `attend`; `added` to the scores."""
    shown = torch.ones(len(key), 1, 1, key.shape[2], dtype=torch.bool, device=key.device)
    if mask is not None:
        shown = mask.expand(len(key), 1, -1, -1)
    columns = shown.any(2, keepdim=True).transpose(2, 3)
    queries, of_query = _integers(query, query.abs().amax(3, keepdim=True), _KEYS)
    keys, of_keys = _integers(key, (key.abs() * columns).amax((2, 3), keepdim=True), _KEYS)
    # Sums of products are exact integers, in float64.
    scores = (queries @ keys.transpose(2, 3)).float() * (of_query * of_keys * scaling)
    return _mixed(scores if added is None else scores + added, shown, value)


def _mixed(scores: Tensor, shown: Tensor, value: Tensor) -> Tensor:
    """What the scores make of the values, (examples, tokens, heads, features)."""
    columns = shown.any(2, keepdim=True).transpose(2, 3)
    values, of_values = _integers(value, (value.abs() * columns).amax((2, 3), keepdim=True), _VALUES)
    scores = scores.masked_fill(~shown, torch.finfo(torch.float32).min)
    exponentials = _rough_exp(scores - scores.amax(3, keepdim=True)) * shown
    sums = exponentials.sum(3, keepdim=True)
    shares = (exponentials * (_SHARES / sums).masked_fill(sums == 0, 0)).round().double()
    found = (shares @ values).float() * (of_values / _SHARES)
    return found.transpose(1, 2).contiguous()


def _relative(
    attention: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Any = None,
    **others: Any,
) -> tuple[Tensor]:
    """In place of `MPNetSelfAttention.forward`; the mask is added to scores."""
    query, key, value = (_by_head(attention, one(hidden_states)) for one in (attention.q, attention.k, attention.v))
    shown, scaling = None if attention_mask is None else attention_mask >= 0, attention.attention_head_size**-0.5
    mixed = _attended(query, key, value, shown, scaling, position_bias)
    return (attention.o(mixed.flatten(2)),)


def _disentangled(
    attention: Any,
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Any = None,
    rel_embeddings: Any = None,
) -> tuple[Tensor, None]:
    """In place of `DisentangledSelfAttention.forward`: keys and what is added to them have the same scale."""
    names = ("query_proj", "key_proj", "value_proj")
    query, key, value = (_by_head(attention, getattr(attention, name)(hidden_states)) for name in names)
    reach = attention.pos_ebd_size
    to_key, to_query = (_by_head(attention, one(rel_embeddings[None, : 2 * reach])) for one in projections(attention))
    shown = attention_mask.bool()
    columns = shown.any(2, keepdim=True).transpose(2, 3)
    queries, of_query = _integers(query, query.abs().amax(3, keepdim=True), _KEYS)
    most = (key.abs() * columns).amax((2, 3), keepdim=True).maximum(to_key.abs().amax((2, 3), keepdim=True))
    keys, of_keys = _integers(key, most, _KEYS)
    added, _ = _integers(to_key, most, _KEYS)
    others, of_others = _integers(to_query, to_query.abs().amax((2, 3), keepdim=True), _KEYS)
    places = torch.clamp(relative_pos + reach, 0, 2 * reach - 1).expand(*query.shape[:3], -1)
    near = queries @ keys.transpose(2, 3) + (queries @ added.transpose(2, 3)).gather(3, places)
    far = (keys @ others.transpose(2, 3)).gather(3, places.transpose(2, 3)).transpose(2, 3)
    scaling = (3 * attention.attention_head_size) ** -0.5
    scores = near.float() * (of_query * of_keys * scaling) + far.float() * (of_keys * of_others * scaling)
    return _mixed(scores, shown, value).flatten(2), None


def _size(attention: Any) -> int:
    size: int = getattr(attention, "attention_head_size", None) or attention.head_dim
    return size


def _by_head(attention: Any, x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], attention.num_attention_heads, -1).transpose(1, 2)


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
