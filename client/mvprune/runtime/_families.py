"""Where the parts of decoders lie that the native kernel computes at once."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch import nn
from transformers import activations

from mvprune.artifact.structures import class_name
from mvprune.runtime._layer import ACTIVATIONS, is_norm
from mvprune.runtime._linear import KernelLinear, address
from mvprune.runtime.decoder import Affine, Block, Gate, Normal

PRODUCTS = ("query", "key", "value", "out", "cross_query", "cross_out", "gate", "up", "down")
NORMS = ("attention_norm", "cross_norm", "feed_norm", "query_norm", "key_norm")
_NUMBERS = ("heads", "groups", "size", "turned", "scale", "is_parallel")

_GATES: Mapping[type[nn.Module], Gate] = MappingProxyType(
    {**ACTIVATIONS, nn.SiLU: "silu", activations.SiLUActivation: "silu"}  # type: ignore[dict-item]
)
_GPT2 = MappingProxyType(
    {
        "attention_norm": "ln_1",
        "query": "attn.c_attn",
        "out": "attn.c_proj",
        "feed_norm": "ln_2",
        "up": "mlp.c_fc",
        "down": "mlp.c_proj",
        "activation": "mlp.act",
        "attention": "attn",
    }
)
_LLAMA = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "out": "self_attn.o_proj",
        "feed_norm": "post_attention_layernorm",
        "gate": "mlp.gate_proj",
        "up": "mlp.up_proj",
        "down": "mlp.down_proj",
        "activation": "mlp.act_fn",
        "attention": "self_attn",
    }
)
_QWEN3 = MappingProxyType({**_LLAMA, "query_norm": "self_attn.q_norm", "key_norm": "self_attn.k_norm"})
_NEOX = MappingProxyType(
    {
        "attention_norm": "input_layernorm",
        "query": "attention.query_key_value",
        "out": "attention.dense",
        "feed_norm": "post_attention_layernorm",
        "up": "mlp.dense_h_to_4h",
        "down": "mlp.dense_4h_to_h",
        "activation": "mlp.act",
        "attention": "attention",
    }
)
_OPT = MappingProxyType(
    {
        "attention_norm": "self_attn_layer_norm",
        "query": "self_attn.q_proj",
        "key": "self_attn.k_proj",
        "value": "self_attn.v_proj",
        "out": "self_attn.out_proj",
        "feed_norm": "final_layer_norm",
        "up": "fc1",
        "down": "fc2",
        "activation": "activation_fn",
        "attention": "self_attn",
    }
)
_BART = MappingProxyType(
    {
        **_OPT,
        "cross_norm": "encoder_attn_layer_norm",
        "cross_query": "encoder_attn.q_proj",
        "cross_out": "encoder_attn.out_proj",
    }
)


class Family(NamedTuple):
    """Decoders that differ by their sizes only.

    Attributes:
        names: paths of a block's parts, by their names in `Block`.
        blocks: name of the list of blocks.
        last: name of the norm after them; "" for none.
        words, positions: names of the embeddings; positions "" where heads are turned instead.
        normalizes_after: whether the norm of a part is after it.
        goes_by_heads: whether query, key and value are in one matrix, one head after the other.
        places: the positions of tokens: their places in the text, or those that the caller gives, and if none are
            given, places in the text or among the tokens that are attended to.
    """

    names: Mapping[str, str]
    blocks: str = "layers"
    last: str = "layer_norm"
    words: str = "embed_tokens"
    positions: str = "embed_positions"
    normalizes_after: bool = False
    goes_by_heads: bool = False
    places: Literal["text", "given or text", "given or kept"] = "given or text"


_LLAMA_LIKE = Family(_LLAMA, last="norm", positions="")
_FAMILIES = MappingProxyType(
    {
        "GPT2Model": Family(_GPT2, "h", "ln_f", "wte", "wpe"),
        "LlamaModel": _LLAMA_LIKE,
        "MistralModel": _LLAMA_LIKE,
        "Qwen2Model": _LLAMA_LIKE,
        "Qwen3Model": _LLAMA_LIKE._replace(names=_QWEN3),
        "GPTNeoXModel": Family(_NEOX, last="final_layer_norm", words="embed_in", positions="", goes_by_heads=True),
        "OPTDecoder": Family(_OPT, last="final_layer_norm", places="given or kept"),
        "BartDecoder": Family(_BART, last="", normalizes_after=True, places="text"),
        "MarianDecoder": Family(_BART, last="", normalizes_after=True, places="text"),
        "MBartDecoder": Family(_BART, places="text"),
        "PegasusDecoder": Family(_BART, places="text"),
    }
)


class Parts(NamedTuple):
    """Modules of a decoder, all of which the kernel computes.

    Attributes:
        name: of the model's class.
        blocks: of each block, its parts by their names in `Block`, and its numbers, such as heads.
        last: None for no norm.
    """

    name: str
    blocks: list[dict[str, Any]]
    last: Any

    @property
    def family(self) -> Family:
        """Where the parts of the model lie."""
        return _FAMILIES[self.name]

    @property
    def has_source(self) -> bool:
        """Whether there is cross-attention."""
        return "cross_query" in self.family.names


def parts_of(model: Any) -> Parts | None:
    """Those of a module, or None if it is no decoder that the kernel knows, or a part of it is not sparse."""
    family = _FAMILIES.get(class_name(model))
    if family is None:
        return None
    config: Any = model.config
    if (
        getattr(config, "sliding_window", None) is not None
        or getattr(config, "add_cross_attention", False)
        or getattr(model, "project_in", None) is not None
        or not getattr(config, "do_layer_norm_before", True)
    ):
        return None
    last = getattr(model, family.last) if family.last else None
    if family.last and (last is None or not _is_known(last)):
        return None
    rotation: Any = None if family.positions else model.rotary_emb
    turned = 2 * rotation.inv_freq.shape[-1] if rotation else 0
    blocks = [_block_parts(block, family.names, config, turned) for block in getattr(model, family.blocks)]
    known = [parts for parts in blocks if parts]
    return Parts(class_name(model), known, last) if blocks and len(known) == len(blocks) else None


def _block_parts(block: nn.Module, names: Mapping[str, str], config: Any, turned: int) -> dict[str, Any]:
    """Empty if the kernel does not know one."""
    parts: dict[str, Any] = {part: block.get_submodule(path) for part, path in names.items()}
    is_known = (
        all(isinstance(parts[one], KernelLinear) and parts[one].masked is not None for one in PRODUCTS if one in parts)
        and all(_is_known(parts[one]) for one in NORMS if one in parts)
        and type(parts["activation"]) in _GATES
    )
    if not is_known:
        return {}
    attention = parts["attention"]
    heads = getattr(attention, "num_heads", None) or config.num_attention_heads
    size = getattr(attention, "head_dim", None) or attention.head_size
    return parts | {
        "heads": heads,
        "groups": config.num_key_value_heads if "gate" in parts else heads,
        "size": size,
        "turned": turned,
        "scale": attention.scaling,
        "is_parallel": getattr(block, "use_parallel_residual", False),
    }


def block_of(parts: Mapping[str, Any], family: Family) -> Block:
    """As the kernel takes it, at its addresses of now."""
    made: dict[str, Any] = {
        name: Affine(parts[name].masked, address(parts[name].bias)) for name in PRODUCTS if name in parts
    }
    made |= {name: normal_of(parts[name]) for name in NORMS if name in parts}
    made |= {name: parts[name] for name in _NUMBERS}
    made |= {"normalizes_after": family.normalizes_after, "goes_by_heads": family.goes_by_heads}
    return Block(**made, activation=_GATES[type(parts["activation"])])


def normal_of(norm: Any) -> Normal:
    """As the kernel takes it."""
    if is_norm(norm):
        return Normal(address(norm.weight), address(norm.bias), norm.eps, is_centred=True)
    return Normal(address(norm.weight), 0, norm.variance_epsilon, is_centred=False)


def _is_known(norm: nn.Module) -> bool:
    """Whether a module is a normalization that the kernel computes."""
    return is_norm(norm) or class_name(norm).endswith("RMSNorm")
