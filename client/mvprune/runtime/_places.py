"""What the scores of an encoder's attention know of the places of tokens, as tables for the native kernel.

Tables of distances have 2 span columns: a query's place minus a key's is -span in the first, span - 1 in the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

from mvprune.runtime import layers
from mvprune.runtime._layer import Block, held_by
from mvprune.runtime._linear import address

_STEP = 64  # by which spans grow
_HIDDEN = -3e38  # a score whose exponential is 0


class Tables(NamedTuple):
    """Places of each block.

    Attributes:
        places: as the kernel takes them.
        scale: of all scores; None for 1 / sqrt(a head's size).
        held: the tensors that the places refer to.
    """

    places: Sequence[layers.Places]
    scale: float | None
    held: Sequence[Tensor]


class Relative:
    """Of MPNet: a bias of each head for each distance."""

    def __init__(self, model: Any, blocks: Sequence[Block]) -> None:
        self._encoder, self._count = model.encoder, len(blocks)

    @staticmethod
    def knows(model: Any) -> bool:
        """Whether a model of this kind has no more than that."""
        return True

    def sources(self) -> list[tuple[dict[str, Any], str]]:
        """Where the tensors lie that the tables are made of."""
        return held_by(self._encoder.relative_attention_bias)

    def tables(self, span: int) -> Tables:
        """Those for examples of up to `span` - `layers.SPARE` tokens."""
        buckets = self._encoder.relative_position_bucket(-_distances(span))
        bias = self._encoder.relative_attention_bias(buckets).T.contiguous()
        return Tables([layers.Places(span, bias=address(bias))] * self._count, None, [bias])


class Turned:
    """Of ModernBERT: features are turned by the place of their token, and some blocks see near keys only."""

    def __init__(self, model: Any, blocks: Sequence[Block]) -> None:
        self._model, self._kinds = model, [model.config.layer_types[block.attention.layer_idx] for block in blocks]

    @staticmethod
    def knows(model: Any) -> bool:
        """Whether the angles of a model do not depend on the length."""
        return all(kind == "default" for kind in model.rotary_emb.rope_type.values())

    def sources(self) -> list[tuple[dict[str, Any], str]]:
        """Where the tensors lie that the tables are made of."""
        buffers: dict[str, Any] = self._model.rotary_emb._buffers
        return [(buffers, f"{kind}_inv_freq") for kind in sorted(set(self._kinds))]

    def tables(self, span: int) -> Tables:
        """Those for examples of up to `span` - `layers.SPARE` tokens."""
        held: list[Tensor] = []
        made: dict[str, layers.Places] = {}
        window = self._model.config.sliding_window
        for kind in set(self._kinds):
            cosines, sines = self._model.rotary_emb(torch.empty(0), torch.arange(span)[None], kind)
            half = cosines.shape[-1] // 2
            turns = torch.cat([cosines[0, :, :half], sines[0, :, :half]], 1).T.contiguous()
            made[kind] = layers.Places(span, turns=address(turns))
            held.append(turns)
            if kind == "sliding_attention":
                bias = torch.where(_distances(span).abs() <= window, 0.0, _HIDDEN)
                made[kind] = made[kind]._replace(window=window, bias=address(bias), shares_bias=True)
                held.append(bias)
        return Tables([made[kind] for kind in self._kinds], None, held)


class Disentangled:
    """Of DeBERTa: what queries have in common with the distance to a key, and keys with that to a query.

    Of https://arxiv.org/abs/2006.03654, (4). A query is multiplied by the sum of a key and of what stands for its
    distance.
    """

    def __init__(self, model: Any, blocks: Sequence[Block]) -> None:
        self._encoder, self._attentions = model.encoder, [block.attention for block in blocks]

    @staticmethod
    def knows(model: Any) -> bool:
        """Whether a model has both products with distances, and nothing between its layers."""
        kinds = set(getattr(model.config, "pos_att_type", None) or ())
        encoder = model.encoder
        return bool(
            encoder.relative_attention and kinds == {"c2p", "p2c"} and encoder.conv is None and model.z_steps <= 1
        )

    def sources(self) -> list[tuple[dict[str, Any], str]]:
        """Where the tensors lie that the tables are made of."""
        modules = [self._encoder.rel_embeddings]
        if "layer_norm" in self._encoder.norm_rel_ebd:
            modules.append(self._encoder.LayerNorm)
        modules += [one for attention in self._attentions for one in projections(attention)]
        return [place for module in modules for place in held_by(module)]

    def tables(self, span: int) -> Tables:
        """Those for examples of up to `span` - `layers.SPARE` tokens."""
        first = self._attentions[0]
        distances = _distances(span)
        if first.position_buckets > 0:
            distances = make_log_bucket_position(distances, first.position_buckets, first.max_relative_positions).long()
        reach = first.pos_ebd_size
        columns = torch.clamp(distances + reach, 0, 2 * reach - 1)
        embeddings = self._encoder.get_rel_embedding()[: 2 * reach]
        places, held = [], []
        for attention in self._attentions:
            both = [project(embeddings) for project in projections(attention)]
            by_head = [one.view(len(one), attention.num_attention_heads, -1).abs().amax((0, 2)) for one in both]
            tables = [one.T[:, columns].contiguous() for one in both]
            held += [*tables, most := torch.stack(by_head, 1).contiguous()]
            to_key, to_query = map(address, tables)
            places.append(layers.Places(span, to_key=to_key, to_query=to_query, most=address(most)))
        return Tables(places, (3 * first.attention_head_size) ** -0.5, held)


Kind = Relative | Turned | Disentangled


def span_for(length: int) -> int:
    """That of tables for examples of up to `length` tokens."""
    return -(-(length + layers.SPARE) // _STEP) * _STEP


def _distances(span: int) -> Tensor:
    return torch.arange(-span, span)


def projections(attention: Any) -> tuple[Any, Any]:
    """What makes keys of the embeddings of distances, and queries."""
    if attention.share_att_key:
        return attention.key_proj, attention.query_proj
    return attention.pos_key_proj, attention.pos_query_proj
