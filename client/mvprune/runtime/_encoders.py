"""Where the parts of encoders lie that the native kernel computes in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    BaseModelOutputWithPooling,
    BaseModelOutputWithPoolingAndCrossAttentions,
)

from mvprune.artifact.structures import class_name
from mvprune.runtime._embedding import StoredEmbedding, is_plain
from mvprune.runtime._layer import Block, is_norm, parts_at, whole_block
from mvprune.runtime._places import Disentangled, Kind, Relative, Turned
from mvprune.spec.structures import BERT

Given = Literal["words", "types", "positions"]

_BERT = MappingProxyType(BERT._asdict())
_MPNET = MappingProxyType(
    {
        **_BERT,
        "attention": "attention.attn",
        "query": "attention.attn.q",
        "key": "attention.attn.k",
        "value": "attention.attn.v",
        "out": "attention.attn.o",
        "attention_norm": "attention.LayerNorm",
    }
)
_DEBERTA = MappingProxyType(
    {
        **_BERT,
        "query": "attention.self.query_proj",
        "key": "attention.self.key_proj",
        "value": "attention.self.value_proj",
    }
)
_MODERN_BERT = MappingProxyType(
    {
        "attention": "attn",
        "query": "attn.Wqkv",
        "out": "attn.Wo",
        "attention_norm": "attn_norm",
        "up": "mlp.Wi",
        "activation": "mlp.act",
        "down": "mlp.Wo",
        "output_norm": "mlp_norm",
    }
)


class Family(NamedTuple):
    """Encoders that differ by their sizes only.

    Attributes:
        names: paths of a block's parts, by their names in `Block`.
        arguments: of the model's forward, the first, in their order.
        output: what it gives.
        blocks: path of the list of blocks.
        tables: names of the embeddings, in the order in which they are added, and what they look up; there may be none
            of a name.
        norm: path of the norm after them.
        last: path of the norm after the blocks; "" for none.
        places: what the scores know of them; None for nothing.
        counts_padding: whether positions are places in the text, or are counted without padding from its id on.
        forms: see `Block`.
        by_function: whether attention is a function that transformers' configuration names.
    """

    names: Mapping[str, str]
    arguments: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
    output: Callable[..., Any] = BaseModelOutputWithPoolingAndCrossAttentions
    blocks: str = "encoder.layer"
    tables: Mapping[str, Given] = MappingProxyType(
        {"word_embeddings": "words", "token_type_embeddings": "types", "position_embeddings": "positions"}
    )
    norm: str = "embeddings.LayerNorm"
    last: str = ""
    places: type[Kind] | None = None
    counts_padding: bool = True
    forms: Mapping[str, bool] = MappingProxyType({})
    by_function: bool = True


_ROBERTA = Family(_BERT, counts_padding=False)
_FAMILIES = MappingProxyType(
    {
        "BertModel": Family(_BERT),
        "CamembertModel": _ROBERTA,
        "RobertaModel": _ROBERTA,
        "XLMRobertaModel": _ROBERTA,
        "MPNetModel": Family(
            _MPNET,
            arguments=("input_ids", "attention_mask", "position_ids"),
            output=BaseModelOutputWithPooling,
            tables=MappingProxyType({"word_embeddings": "words", "position_embeddings": "positions"}),
            places=Relative,
            counts_padding=False,
            by_function=False,
        ),
        "DebertaV2Model": Family(
            _DEBERTA,
            output=BaseModelOutput,
            tables=MappingProxyType(
                {"word_embeddings": "words", "position_embeddings": "positions", "token_type_embeddings": "types"}
            ),
            places=Disentangled,
            by_function=False,
        ),
        "ModernBertModel": Family(
            _MODERN_BERT,
            arguments=("input_ids", "attention_mask", "position_ids"),
            output=BaseModelOutput,
            blocks="layers",
            tables=MappingProxyType({"tok_embeddings": "words"}),
            norm="embeddings.norm",
            last="final_norm",
            places=Turned,
            forms=MappingProxyType({"normalizes_before": True, "is_gated": True}),
        ),
    }
)


class Encoder(NamedTuple):
    """The parts of an encoder, all of which the kernel computes.

    Attributes:
        name: of the model's class.
        modules: its blocks.
        blocks: the same, as the kernel takes them.
        tables: of its embeddings, with what they look up.
        norm: after them.
        last: after the blocks; None for none.
        places: None for none.
    """

    name: str
    modules: Sequence[nn.Module]
    blocks: Sequence[Block]
    tables: Sequence[tuple[Any, Given]]
    norm: Any
    last: Any
    places: Kind | None

    @property
    def family(self) -> Family:
        """Where the parts are."""
        return _FAMILIES[self.name]


def known_blocks(model: Any) -> tuple[Family, list[dict[str, Any]]]:
    """Where parts are, and those of the blocks of a module, sparse or not; none if it is no encoder that the kernel
    knows."""
    family = _FAMILIES.get(class_name(model), _ROBERTA)
    if (
        class_name(model) not in _FAMILIES
        or (family.places and not family.places.knows(model))
        or getattr(model.config, "is_decoder", False)
        or getattr(model.embeddings, "position_embedding_type", "absolute") != "absolute"
        or getattr(model.embeddings, "embed_proj", None) is not None
    ):
        return family, []
    blocks = [parts_at(module, family.names) for module in model.get_submodule(family.blocks)]
    return family, blocks if all(blocks) else []


def encoder_of(model: Any) -> Encoder | None:
    """The parts of a module, or None if it is no encoder that the kernel knows, or a part of it is not sparse."""
    family, parts = known_blocks(model)
    blocks = [whole_block(one, **family.forms) for one in parts]
    known = [block for block in blocks if block is not None]
    if not known or len(known) < len(blocks):
        return None
    found = ((getattr(model.embeddings, name), given) for name, given in family.tables.items())
    tables = [(table, given) for table, given in found if table is not None]
    norm, last = model.get_submodule(family.norm), model.get_submodule(family.last) if family.last else None
    if not all(isinstance(table, StoredEmbedding) or is_plain(table) for table, _ in tables) or not all(
        is_norm(one) for one in (norm, last) if one is not None
    ):
        return None
    modules = list(model.get_submodule(family.blocks))
    places = family.places(model, known) if family.places else None
    return Encoder(class_name(model), modules, known, tables, norm, last, places)
